#ifndef TESTING_RANDOM_WEIGHTS_H_
#define TESTING_RANDOM_WEIGHTS_H_

#include <cstdint>
#include <memory>

#include "kvm/model/stack.pb.h"
#include "kvm/model/weight_source.h"

namespace kvm {

// Weights for tests, the same on every machine, float32. Unlike those of a new model nothing is zero, one or
// symmetric: gates, temperatures, mixes, norms and block outputs all take part.
std::unique_ptr<WeightSource> RandomWeights(const StackSpec& spec, uint64_t seed);

}  // namespace kvm

#endif  // TESTING_RANDOM_WEIGHTS_H_
