#include "kvm/base/check.h"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace kvm {
namespace check_internal {

// Only stdio: an abort that allocates or logs might not get its message out.
void Fail(const char* expected, CallSite site) {
  std::fprintf(stderr, "%s: expected %s (%s:%d)\n", site.function, expected, site.file, site.line);
  std::abort();
}

void FailCompared(int64_t got, const char* relation, int64_t expected, const char* what, CallSite site) {
  std::fprintf(stderr, "%s: %s is %" PRId64 ", expected %s%" PRId64 " (%s:%d)\n", site.function, what, got, relation,
               expected, site.file, site.line);
  std::abort();
}

void FailBetween(int64_t got, int64_t low, int64_t high, const char* what, CallSite site) {
  std::fprintf(stderr, "%s: %s is %" PRId64 ", expected %" PRId64 " to %" PRId64 " (%s:%d)\n", site.function, what, got,
               low, high, site.file, site.line);
  std::abort();
}

}  // namespace check_internal
}  // namespace kvm
