#ifndef KVM_TESTING_FUZZ_READ_WEIGHTS_H_
#define KVM_TESTING_FUZZ_READ_WEIGHTS_H_

#include "kvm/model/weights/weight_source.h"

namespace kvm {

// Reads every byte of every tensor, so that a tensor that reaches beyond its file does not go unnoticed.
void ReadWeights(const WeightSource& weights);

}  // namespace kvm

#endif  // KVM_TESTING_FUZZ_READ_WEIGHTS_H_
