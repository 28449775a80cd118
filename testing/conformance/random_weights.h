#ifndef TESTING_CONFORMANCE_RANDOM_WEIGHTS_H_
#define TESTING_CONFORMANCE_RANDOM_WEIGHTS_H_

#include <cstdint>
#include <memory>

#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

// Weights for tests, the same on every machine, float32. Unlike those of a new model nothing is zero, one or
// symmetric: gates, temperatures, mixes, norms and block outputs all take part.
std::unique_ptr<WeightSource> RandomWeights(const StackSpec& spec, uint64_t seed,
                                            const MixerKinds& kinds = BuiltinMixerKinds());

}  // namespace kvm

#endif  // TESTING_CONFORMANCE_RANDOM_WEIGHTS_H_
