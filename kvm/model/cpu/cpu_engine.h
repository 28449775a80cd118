#ifndef KVM_MODEL_CPU_CPU_ENGINE_H_
#define KVM_MODEL_CPU_CPU_ENGINE_H_

// The processor as an engine: the kernels of kvm/kernels/cpu over weights packed in panels.

#include <memory>

#include "absl/status/statusor.h"
#include "kvm/model/engine/engine.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/stack/stack_plan.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

// An EngineFactory (model_options.h). Packs the weights; a source whose memory lasts (WeightSource::Memory) and that
// has panels of the wanted type is not copied: the engine shares its memory. Its states are HostLayerStates.
// InvalidArgument as QuantizeWeights where weights are to be int8.
absl::StatusOr<std::unique_ptr<Engine>> NewCpuEngine(const StackPlan& plan, const WeightSource& weights,
                                                     const ModelOptions& options);

}  // namespace kvm

#endif  // KVM_MODEL_CPU_CPU_ENGINE_H_
