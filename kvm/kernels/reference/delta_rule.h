#ifndef KVM_KERNELS_REFERENCE_DELTA_RULE_H_
#define KVM_KERNELS_REFERENCE_DELTA_RULE_H_

#include <vector>

namespace kvm {
namespace reference {

// One token of one value head.
struct DeltaRuleToken {
  std::vector<double> q, k;       // [K]
  std::vector<double> v;          // [V]
  std::vector<double> log_decay;  // [K]
  double beta = 0;
};

// state [K][V] ← diag(exp g)·S, then S + k ⊗ β(v − Sᵀk); returns Sᵀq of the new state.
std::vector<double> DeltaRuleStep(const DeltaRuleToken& token, std::vector<std::vector<double>>& state);

// scale·x/sqrt(Σx² + 1e-6).
std::vector<double> DeltaUnitLength(const std::vector<double>& x, double scale);

// −rate·softplus(x).
double SoftplusLogDecay(double x, double rate);

// lower_bound·σ(rate·x).
double BoundedLogDecay(double x, double rate, double lower_bound);

// x/sqrt(mean(x²) + epsilon) ⊙ weight ⊙ gate.
std::vector<double> GatedRmsNorm(const std::vector<double>& x, const std::vector<double>& weight, double epsilon,
                                 const std::vector<double>& gate);

}  // namespace reference
}  // namespace kvm

#endif  // KVM_KERNELS_REFERENCE_DELTA_RULE_H_
