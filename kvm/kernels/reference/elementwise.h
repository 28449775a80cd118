#ifndef KVM_KERNELS_REFERENCE_ELEMENTWISE_H_
#define KVM_KERNELS_REFERENCE_ELEMENTWISE_H_

namespace kvm {
namespace reference {

// 1/(1 + exp(−x)).
double Sigmoid(double x);

// x/(1 + exp(−x)).
double Silu(double x);

// log(1 + exp(x)).
double Softplus(double x);

// 1 + ELU(x).
double OnePlusElu(double x);

// cap·tanh(x/cap).
double SoftCap(double x, double cap);

// exp(−exp(−softplus(−x) − 0.5)).
double Rwkv7Decay(double x);

}  // namespace reference
}  // namespace kvm

#endif  // KVM_KERNELS_REFERENCE_ELEMENTWISE_H_
