#ifndef KVM_IO_TENSORS_SHARDED_WEIGHTS_H_
#define KVM_IO_TENSORS_SHARDED_WEIGHTS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

// Opens the tensors that a model.safetensors.index.json names (weight_map: tensor → file in `folder`) as one source.
// The index alone says which tensors there are: others in its shards, and other files, are not read. InvalidArgument,
// naming `index_path` or the shards, for an index that is no such object or names files outside the folder, and for
// shards that lack tensors; NotFound for shards that are not there; errors of SafetensorsFile::Open. Whatever is wrong
// with several shards, one error says of all of them. Appends to
// `notes` what is odd but harmless: a wrong total_size, tensors of shards that the index does not name.
absl::StatusOr<std::unique_ptr<WeightSource>> OpenShardedWeights(const std::string& folder,
                                                                 const std::string& index_path,
                                                                 std::vector<std::string>* notes);

}  // namespace kvm

#endif  // KVM_IO_TENSORS_SHARDED_WEIGHTS_H_
