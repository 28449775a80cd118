// A packed model: whatever opens can be read to its last byte, in the order of the file and row by row.

#include <cstdint>

#include "absl/status/statusor.h"
#include "kvm/io/tensors/packed_file.h"
#include "testing/fuzz/memory_file.h"
#include "testing/fuzz/memory_limit.h"
#include "testing/fuzz/read_weights.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const kvm::MemoryFile file(data, size);
  // The most for its size is a tensor of a few bytes in a layer that lacks all others, whose names a message then
  // lists.
  const kvm::MemoryLimit limit((size_t{256} << 10) + 200 * size);
  const absl::StatusOr<kvm::PackedModel> model = kvm::OpenPackedModel(file.path());
  if (model.ok()) kvm::ReadWeights(*model->weights);
  return 0;
}
