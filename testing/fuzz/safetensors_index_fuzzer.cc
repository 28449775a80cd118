// model.safetensors.index.json beside two shards that are there.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "glog/logging.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/io/tensors/sharded_weights.h"
#include "kvm/kernels/tensor.h"
#include "testing/fuzz/memory_file.h"
#include "testing/fuzz/memory_limit.h"
#include "testing/fuzz/read_weights.h"

namespace {

// A folder with shards a (tensors x and y) and b (tensor z), for as long as it lives.
class Shards {
 public:
  Shards() {
    const char* const parent = std::getenv("TEST_TMPDIR");
    folder_ = std::string(parent != nullptr ? parent : "/tmp") + "/shards.XXXXXX";
    PCHECK(mkdtemp(folder_.data()) != nullptr);
    const float values[] = {1, 2, 3};
    const kvm::TensorView tensor = {kvm::DType::kF32, {3}, values};
    CHECK(kvm::WriteSafetensors(folder_ + "/a", {{"x", tensor}, {"y", tensor}}).ok());
    CHECK(kvm::WriteSafetensors(folder_ + "/b", {{"z", tensor}}).ok());
  }
  ~Shards() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Shards shards;
  const kvm::MemoryFile index(data, size);
  const kvm::MemoryLimit limit((size_t{64} << 10) + 100 * size);
  std::vector<std::string> notes;
  const absl::StatusOr<std::unique_ptr<kvm::WeightSource>> weights =
      kvm::OpenShardedWeights(shards.folder(), index.path(), &notes);
  if (weights.ok()) kvm::ReadWeights(**weights);
  return 0;
}
