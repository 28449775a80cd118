#ifndef KVM_MODEL_MODEL_OPTIONS_H_
#define KVM_MODEL_MODEL_OPTIONS_H_

#include "kvm/kernels/dtype.h"

namespace kvm {

// How matrices are kept in memory.
enum class WeightType {
  kAsStored,  // bfloat16 where the file has it, otherwise float32
  kF32,
  kBF16,
};

struct ModelOptions {
  WeightType weights = WeightType::kAsStored;
  DType state = DType::kF32;  // of readout rows and windows: kF32 or kBF16
};

}  // namespace kvm

#endif  // KVM_MODEL_MODEL_OPTIONS_H_
