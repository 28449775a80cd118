#ifndef KVM_KERNELS_CPU_RECURRENCE_DELTA_RULE_H_
#define KVM_KERNELS_CPU_RECURRENCE_DELTA_RULE_H_

// The gated delta rule, with one decay a head (Gated DeltaNet, arXiv 2412.06464) or one a key channel (Kimi Delta
// Attention, arXiv 2510.26692).

#include "absl/types/span.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {

// The tokens of one sequence and one value head, with K key and V value channels.
struct DeltaRuleHead {
  MatrixView<const float> q, k;   // [n, K]
  MatrixView<const float> v;      // [n, V]
  MatrixView<const float> decay;  // exp of the log decay, in [0, 1]: [n, 1] or [n, K]
  MatrixView<const float> beta;   // [n, 1]
  float* state = nullptr;         // S [K, V], read and written
  MatrixView<float> out;          // [n, V], must not overlap anything read
};

// For each token in order: S ← diag(decay)·S;  S ← S + k ⊗ β(v − Sᵀk);  out = Sᵀq.
// Sums over key channels run in ascending order in float32, so any cut of the tokens gives the same bits.
void DeltaRule(absl::Span<const DeltaRuleHead> heads, ThreadPool& pool);

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_RECURRENCE_DELTA_RULE_H_
