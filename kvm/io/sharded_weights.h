#ifndef KVM_IO_SHARDED_WEIGHTS_H_
#define KVM_IO_SHARDED_WEIGHTS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kvm/model/weight_source.h"

namespace kvm {

// Opens the safetensors files in `folder` that a model.safetensors.index.json names (weight_map: tensor → file), each
// once, as one source. InvalidArgument, naming `index_path` or the shard, for an index that is no such object, names
// files outside the folder, or tensors that their shard lacks, and for a tensor in two shards; errors of
// SafetensorsFile::Open for shards.
absl::StatusOr<std::unique_ptr<WeightSource>> OpenShardedWeights(const std::string& folder,
                                                                 const std::string& index_path);

}  // namespace kvm

#endif  // KVM_IO_SHARDED_WEIGHTS_H_
