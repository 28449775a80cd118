// Runs a test with the kernels held to one instruction set: --instruction_set=AVX2, by Highway's name for it. On a
// machine that cannot run it there is nothing to test.

#include <cstdint>
#include <cstdio>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  absl::string_view wanted = argc > 1 ? argv[1] : "";
  if (!absl::ConsumePrefix(&wanted, "--instruction_set=")) {
    std::fprintf(stderr, "usage: %s --instruction_set=NAME\n", argv[0]);
    return 2;
  }
  int64_t target = 0;
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    if (wanted == hwy::TargetName(left & -left)) target = left & -left;
  }
  if (target == 0) {
    std::printf("skipped: %s is not among what this build and machine can run\n", argv[1]);
    return 0;
  }
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().DeInit();
  return RUN_ALL_TESTS();
}
