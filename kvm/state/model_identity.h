#ifndef KVM_STATE_MODEL_IDENTITY_H_
#define KVM_STATE_MODEL_IDENTITY_H_

#include <cstdint>
#include <string>

#include "kvm/kernels/dtype.h"
#include "kvm/kernels/weight_type.h"

namespace kvm {

// What a state belongs to: it means nothing to another model, and with other options it would not go on to the bit.
struct ModelIdentity {
  uint64_t fingerprint = 0;  // of spec and weights (kvm/io/tensors/model_fingerprint.h)
  WeightType weights = WeightType::kAsStored;
  DType state = DType::kF32;
  bool chunked_recurrences = false;
  std::string stack;        // the spec as text, for people
  bool provenance = false;  // whether states record the row of every token
};

}  // namespace kvm

#endif  // KVM_STATE_MODEL_IDENTITY_H_
