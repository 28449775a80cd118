#ifndef KVM_BENCH_BENCH_HOOKS_H_
#define KVM_BENCH_BENCH_HOOKS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace kvm {

// What a long measurement asks and tells whoever started it, between steps.
struct BenchHooks {
  // Whether to stop. What is under way then ends with BenchCancelled().
  std::function<bool()> cancelled = [] { return false; };
  // How many `unit`s of `what` are done.
  std::function<void(const std::string& what, const std::string& unit, int64_t done, int64_t total)> progress =
      [](const std::string&, const std::string&, int64_t, int64_t) {};
};

inline absl::Status BenchCancelled() { return absl::CancelledError("the measurement was stopped"); }

// Seconds on a clock that nobody sets.
inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace kvm

#endif  // KVM_BENCH_BENCH_HOOKS_H_
