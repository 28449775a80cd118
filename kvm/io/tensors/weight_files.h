#ifndef KVM_IO_TENSORS_WEIGHT_FILES_H_
#define KVM_IO_TENSORS_WEIGHT_FILES_H_

// Writing a model's tensors as safetensors files.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/io/tensors/tensor_stream.h"
#include "kvm/kernels/dtype.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

// All tensors of a source that passed CheckWeights: those of StackParameters in their order, then those that nothing
// reads.
std::vector<std::string> TensorOrder(const StackSpec& spec, const WeightSource& weights);

// Cuts tensors into shards as Hugging Face's tools do: in their order, each shard as full as `max_bytes` lets it be,
// and a tensor that is larger than that alone in one.
std::vector<std::vector<std::string>> PlanShards(const std::vector<std::string>& names, const WeightSource& weights,
                                                 std::optional<DType> dtype, int64_t max_bytes);

// Writes model.safetensors into a folder, or, where one file would have more than `max_bytes` of tensors, the files
// model-00001-of-0000N.safetensors and then model.safetensors.index.json. Each file is written atomically; `written`
// gets the paths of those that were, even when an error follows. Errors of StreamWeights.
absl::Status WriteWeightFiles(const std::string& folder, const StackSpec& spec, const WeightSource& weights,
                              const TensorWriting& writing, int64_t max_bytes, std::vector<std::string>* written);

// Writes all tensors into the one file `path`, with `metadata` beside {"format": "pt"}.
absl::Status WriteWeightFile(const std::string& path, const std::vector<std::string>& names,
                             const WeightSource& weights, const TensorWriting& writing,
                             std::map<std::string, std::string> metadata = {});

}  // namespace kvm

#endif  // KVM_IO_TENSORS_WEIGHT_FILES_H_
