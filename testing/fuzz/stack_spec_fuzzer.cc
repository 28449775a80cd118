// stack.textproto: whatever is read is valid, and survives being written and read again.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/stack/stack_spec.h"
#include "testing/fuzz/memory_limit.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const kvm::MemoryLimit limit((size_t{128} << 10) + 100 * size);
  const absl::StatusOr<kvm::StackSpec> spec = kvm::ParseStackSpec(text, "stack.textproto");
  if (!spec.ok()) return 0;
  CHECK(kvm::ValidateStack(*spec).ok());
  const absl::StatusOr<kvm::StackSpec> again = kvm::ParseStackSpec(kvm::FormatStackSpec(*spec), "written");
  CHECK(again.ok()) << again.status();
  CHECK(spec->SerializeAsString() == again->SerializeAsString())
      << spec->DebugString() << "became" << again->DebugString();
  return 0;
}
