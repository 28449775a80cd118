#ifndef KVM_IO_IDENTIFY_MODEL_H_
#define KVM_IO_IDENTIFY_MODEL_H_

#include <cstdint>
#include <optional>

#include "kvm/model/stack/model_options.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/weight_source.h"
#include "kvm/state/model_identity.h"

namespace kvm {

// What states of a model belong to. `stated` is the fingerprint of a model whose file states it
// (OpenedModel::fingerprint); without it all weights are read, which takes as long as loading a model at the least.
ModelIdentity IdentifyModel(const StackSpec& spec, const WeightSource& weights, std::optional<uint64_t> stated,
                            const ModelOptions& options);

}  // namespace kvm

#endif  // KVM_IO_IDENTIFY_MODEL_H_
