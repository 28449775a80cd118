// A PyTorch checkpoint, and the RWKV-7 stack that it may hold.

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "glog/logging.h"
#include "kvm/io/torch/rwkv_checkpoint.h"
#include "kvm/io/torch/torch_file.h"
#include "kvm/model/weights/parameters.h"
#include "testing/fuzz/memory_file.h"
#include "testing/fuzz/memory_limit.h"
#include "testing/fuzz/read_weights.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const kvm::MemoryFile file(data, size);
  // As the pickle; and tensors that share storages may be copied, up to 16 times the file.
  const kvm::MemoryLimit limit((size_t{256} << 10) + 300 * size);
  absl::StatusOr<std::unique_ptr<kvm::TorchFile>> opened = kvm::TorchFile::Open(file.path());
  if (!opened.ok()) return 0;
  kvm::ReadWeights(**opened);
  static_cast<void>((*opened)->CheckContents({}).ok());
  const absl::StatusOr<kvm::RwkvCheckpoint> checkpoint = kvm::ReadRwkvCheckpoint(*std::move(opened));
  if (!checkpoint.ok()) return 0;
  CHECK(kvm::CheckWeights(checkpoint->spec, *checkpoint->weights).ok());
  kvm::ReadWeights(*checkpoint->weights);
  return 0;
}
