#ifndef KVM_KERNELS_CPU_VECTORS_EVERY_TARGET_H_
#define KVM_KERNELS_CPU_VECTORS_EVERY_TARGET_H_

#include "gtest/gtest.h"
#include "hwy/highway.h"

namespace kvm {

// Runs `body` once with dispatch held to each instruction set that was compiled and that this machine can execute.
template <typename Body>
void ForEveryTarget(Body body) {
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_VECTORS_EVERY_TARGET_H_
