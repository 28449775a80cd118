// config.json: whatever is read is a valid stack, and survives being written and read again.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"
#include "kvm/io/huggingface/huggingface.h"
#include "kvm/io/huggingface/huggingface_writer.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/stack/stack_spec.h"
#include "testing/fuzz/memory_limit.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view json(reinterpret_cast<const char*>(data), size);
  // One number asks for up to 4096 layers, each a short string, in the specs read and written.
  const kvm::MemoryLimit limit((size_t{1} << 20) + 100 * size);
  const absl::StatusOr<kvm::HuggingFaceConfig> config = kvm::ParseHuggingFaceConfig(json, "config.json");
  if (!config.ok()) return 0;
  CHECK(kvm::ValidateStack(config->spec).ok());
  const absl::StatusOr<std::string> written = kvm::FormatHuggingFaceConfig(config->spec, config->fields);
  CHECK(written.ok()) << written.status();
  const absl::StatusOr<kvm::HuggingFaceConfig> again = kvm::ParseHuggingFaceConfig(*written, "written");
  CHECK(again.ok()) << again.status();
  CHECK(config->spec.SerializeAsString() == again->spec.SerializeAsString())
      << config->spec.DebugString() << "became" << again->spec.DebugString();
  return 0;
}
