// A safetensors file: whatever opens can be read to its last byte.

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kvm/io/tensors/safetensors.h"
#include "testing/fuzz/memory_file.h"
#include "testing/fuzz/memory_limit.h"
#include "testing/fuzz/read_weights.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const kvm::MemoryFile file(data, size);
  const kvm::MemoryLimit limit((size_t{64} << 10) + 100 * size);
  const absl::StatusOr<std::unique_ptr<kvm::SafetensorsFile>> opened = kvm::SafetensorsFile::Open(file.path());
  if (opened.ok()) kvm::ReadWeights(**opened);
  return 0;
}
