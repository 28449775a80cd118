#ifndef KVM_KERNELS_WEIGHT_TYPE_H_
#define KVM_KERNELS_WEIGHT_TYPE_H_

namespace kvm {

// How matrices are kept in memory.
enum class WeightType {
  kAsStored,  // bfloat16 and int8 where the file has them, otherwise float32
  kF32,
  kBF16,
  kI8,  // int8 with scales (int8_panels.h), but for small ones, which stay as stored (quantized_weights.h)
};

// "as-is", "f32", "bf16" or "int8": as flags and snapshots name them.
inline const char* Name(WeightType type) {
  switch (type) {
    case WeightType::kAsStored:
      return "as-is";
    case WeightType::kF32:
      return "f32";
    case WeightType::kBF16:
      return "bf16";
    case WeightType::kI8:
      return "int8";
  }
  return "";
}

}  // namespace kvm

#endif  // KVM_KERNELS_WEIGHT_TYPE_H_
