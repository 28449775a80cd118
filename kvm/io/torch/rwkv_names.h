#ifndef KVM_IO_TORCH_RWKV_NAMES_H_
#define KVM_IO_TORCH_RWKV_NAMES_H_

// Which tensor of an official RWKV-7 checkpoint is which of ours, for rwkv_checkpoint.cc alone.

#include <string>

#include "absl/strings/string_view.h"
#include "kvm/kernels/tensor.h"

namespace kvm {

struct RwkvName {
  std::string name;
  bool transposed = false;  // stored [inputs, outputs] there, [outputs, inputs] here
};

// The official name of a parameter of an RWKV-7 stack ("transformer.h.0.attn.w1.weight" is "blocks.0.att.w1").
RwkvName ToRwkvName(absl::string_view parameter);

// v0, v1 and v2 of block 0, in whose place official checkpoints have none.
bool IsUnusedValueGate(absl::string_view rwkv_name);

// The two extents in the other order, of a matrix.
Shape Transposed(const Shape& shape);

// A matrix with rows and columns exchanged, bit by bit.
Tensor Transposed(const TensorView& matrix);

}  // namespace kvm

#endif  // KVM_IO_TORCH_RWKV_NAMES_H_
