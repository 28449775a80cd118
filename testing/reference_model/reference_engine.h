#ifndef TESTING_REFERENCE_MODEL_REFERENCE_ENGINE_H_
#define TESTING_REFERENCE_MODEL_REFERENCE_ENGINE_H_

// The reference model as an engine, slow and obvious: a sequence remembers its tokens, and a pass computes all of them
// again in double precision. What shows that the seam is wide enough for a second device.

#include <memory>

#include "absl/status/statusor.h"
#include "kvm/model/engine/engine.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/stack/stack_plan.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

// An EngineFactory. Copies the weights. States are the engine's own: layer 0 has "tokens", I32 [position], the others
// have nothing. InvalidArgument naming the option or the KVM field that the reference does not know.
absl::StatusOr<std::unique_ptr<Engine>> NewReferenceEngine(const StackPlan& plan, const WeightSource& weights,
                                                           const ModelOptions& options);

}  // namespace kvm

#endif  // TESTING_REFERENCE_MODEL_REFERENCE_ENGINE_H_
