#ifndef KVM_KERNELS_CPU_RECURRENCE_RECURRENCE_CHECKS_H_
#define KVM_KERNELS_CPU_RECURRENCE_RECURRENCE_CHECKS_H_

// What the step forms and the chunked forms of recurrences check of a head.

#include "kvm/base/check.h"
#include "kvm/kernels/check_view.h"
#include "kvm/kernels/cpu/recurrence/delta_rule.h"
#include "kvm/kernels/cpu/recurrence/wkv7.h"

namespace kvm {

inline void CheckHead(const Wkv7Head& head, CallSite site) {
  const int64_t n = head.r.rows, dim = head.r.cols;
  CheckAtLeast(dim, 1, "r.cols", site);
  CheckView(head.r, n, dim, "r", site);
  CheckView(head.w, n, dim, "w", site);
  CheckView(head.k, n, dim, "k", site);
  CheckView(head.v, n, dim, "v", site);
  CheckView(head.kappa, n, dim, "kappa", site);
  CheckView(head.a, n, dim, "a", site);
  CheckView(head.out, n, dim, "out", site);
  Check(head.state != nullptr, "state in memory", site);
  const auto apart = [&](const MatrixView<const float>& input) {
    CheckApart(head.out, input, "out to share no memory with what is read", site);
  };
  apart(head.r);
  apart(head.w);
  apart(head.k);
  apart(head.v);
  apart(head.kappa);
  apart(head.a);
}

inline void CheckHead(const DeltaRuleHead& head, CallSite site) {
  const int64_t n = head.k.rows, keys = head.k.cols, values = head.v.cols;
  CheckAtLeast(keys, 1, "k.cols", site);
  CheckAtLeast(values, 1, "v.cols", site);
  CheckView(head.q, n, keys, "q", site);
  CheckView(head.k, n, keys, "k", site);
  CheckView(head.v, n, values, "v", site);
  CheckView(head.decay, n, head.decay.cols == 1 ? 1 : keys, "decay", site);
  CheckView(head.beta, n, 1, "beta", site);
  CheckView(head.out, n, values, "out", site);
  Check(head.state != nullptr, "state in memory", site);
  const auto apart = [&](const MatrixView<const float>& input) {
    CheckApart(head.out, input, "out to share no memory with what is read", site);
  };
  apart(head.q);
  apart(head.k);
  apart(head.v);
  apart(head.decay);
  apart(head.beta);
}

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_RECURRENCE_RECURRENCE_CHECKS_H_
