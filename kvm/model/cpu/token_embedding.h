#ifndef KVM_MODEL_CPU_TOKEN_EMBEDDING_H_
#define KVM_MODEL_CPU_TOKEN_EMBEDDING_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kvm/kernels/panels_view.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

// The vectors of the vocabulary [vocab_size, D], looked up row by row: float32 or bfloat16 as `type` says, borrowed
// from the source's memory where it has them so (WeightSource::Memory). Panels of int8 are read where they lie: a tied
// head and the embedding are then one matrix in memory. Thread-safe once made.
class TokenEmbedding {
 public:
  TokenEmbedding() = default;
  // `weights` passed CheckWeights.
  TokenEmbedding(const WeightSource& weights, WeightType type);

  // The vector of `token`, which is in the vocabulary. out: [D].
  void CopyRow(int64_t token, absl::Span<float> out) const;

  int64_t byte_size() const { return panels_.data != nullptr ? panels_.byte_size() : rows_.byte_size(); }

  // Whether it reads the memory of `panels`.
  bool Shows(const PanelsView& panels) const { return panels_.data != nullptr && panels_.data == panels.data; }

 private:
  PanelsView panels_;  // of int8, or else:
  TensorView rows_ = {DType::kF32, {0}, nullptr};
  Tensor owned_;  // what rows_ shows unless it is borrowed
};

}  // namespace kvm

#endif  // KVM_MODEL_CPU_TOKEN_EMBEDDING_H_
