#ifndef KVM_MODEL_STACK_KINDS_KIND_SIZES_H_
#define KVM_MODEL_STACK_KINDS_KIND_SIZES_H_

#include <cstdint>
#include <optional>

#include "kvm/kernels/tensor.h"
#include "kvm/model/stack/stack_limits.h"

namespace kvm {

inline constexpr int64_t kFloatBytes = sizeof(float);

// As a floating point number, so that nothing overflows.
inline double SizeProduct(int64_t a, int64_t b, int64_t c) {
  return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
}

// The first extent of a matrix [rank, D]; 0 when there is no such matrix.
inline int32_t RankOf(const std::optional<Shape>& shape) {
  if (!shape.has_value() || shape->size() != 2 || shape->front() > kMaxSpecSize) return 0;
  return static_cast<int32_t>(shape->front());
}

}  // namespace kvm

#endif  // KVM_MODEL_STACK_KINDS_KIND_SIZES_H_
