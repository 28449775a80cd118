#ifndef KVM_KERNELS_CPU_RECURRENCE_WKV7_H_
#define KVM_KERNELS_CPU_RECURRENCE_WKV7_H_

// The RWKV-7 recurrence ("Goose", arXiv 2503.14456) and the element by element work around it.

#include "absl/types/span.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {

// In each head of `head_dim` columns: κ = k ⊙ k_k scaled to length 1 (norm floored at 1e-12), then
// k = k ⊙ (1 + (a − 1) ⊙ k_a).  k, a, kappa: [n, d]; k_k, k_a: [d]. k is changed in place.
void Wkv7Keys(MatrixView<float> k, MatrixView<const float> a, absl::Span<const float> k_k, absl::Span<const float> k_a,
              int64_t head_dim, MatrixView<float> kappa);

// The tokens of one sequence and one head. All matrices are [n, head_dim].
struct Wkv7Head {
  MatrixView<const float> r, w, k, v, kappa, a;  // w: the decay in (0, 1)
  float* state = nullptr;                        // S [head_dim (key), head_dim (value)], read and written
  MatrixView<float> out;                         // must not overlap anything read
};

// For each token in order: S ← diag(w)·S + (κ⊙a) ⊗ (−κᵀS) + k ⊗ v with the old S on the right;  out = rᵀS with the new.
// Sums over key channels run in ascending order in float32, so any cut of the tokens gives the same bits.
void Wkv7(absl::Span<const Wkv7Head> heads, ThreadPool& pool);

// out += (Σ_head r ⊙ k ⊙ r_k) · v within each head, then out = out ⊙ g.
// out, r, k, v, g: [n, d]; r_k: [d] (heads concatenated).
void Wkv7BonusAndGate(MatrixView<float> out, MatrixView<const float> r, MatrixView<const float> k,
                      MatrixView<const float> v, absl::Span<const float> r_k, int64_t head_dim,
                      MatrixView<const float> g);

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_RECURRENCE_WKV7_H_
