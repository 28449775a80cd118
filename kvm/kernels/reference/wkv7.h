#ifndef KVM_KERNELS_REFERENCE_WKV7_H_
#define KVM_KERNELS_REFERENCE_WKV7_H_

#include <vector>

namespace kvm {
namespace reference {

// One token of one head; all [head_dim].
struct Wkv7Token {
  std::vector<double> r, w, k, v, kappa, a;
};

// state [key channel][value channel] ← diag(w)·S + (κ⊙a) ⊗ (−κᵀS) + k ⊗ v; returns rᵀS of the new state.
std::vector<double> Wkv7Step(const Wkv7Token& token, std::vector<std::vector<double>>& state);

// κ = k ⊙ k_k at length 1, then k = k ⊙ (1 + (a − 1) ⊙ k_a), for one head.
void Wkv7Keys(const std::vector<double>& a, const std::vector<double>& k_k, const std::vector<double>& k_a,
              std::vector<double>& k, std::vector<double>& kappa);

}  // namespace reference
}  // namespace kvm

#endif  // KVM_KERNELS_REFERENCE_WKV7_H_
