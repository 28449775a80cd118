#include "kvm/kernels/scratch.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace kvm {
namespace {

void Fill(MatrixView<float> m, float value) { std::fill_n(m.data, m.rows * m.cols, value); }

bool AllEqual(MatrixView<float> m, float value) {
  return std::all_of(m.data, m.data + m.rows * m.cols, [&](float x) { return x == value; });
}

TEST(ScratchTest, MatricesAreDenseAlignedAndApart) {
  Scratch scratch;
  Scratch::Scope scope(scratch);
  std::vector<MatrixView<float>> taken;
  // More than any one block, so that later matrices come from added blocks.
  for (int i = 0; i < 40; ++i) {
    taken.push_back(scratch.Matrix(1 + 97 * i, 33));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(taken.back().data) % 64, 0u);
    EXPECT_EQ(taken.back().stride, 33);
    Fill(taken.back(), i);
  }
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(AllEqual(taken[i], i)) << i;
}

TEST(ScratchTest, AScopeGivesBackWhatWasTakenWithinIt) {
  Scratch scratch;
  Scratch::Scope outer(scratch);
  const MatrixView<float> kept = scratch.Matrix(4, 4);
  Fill(kept, 1);
  float* first;
  {
    Scratch::Scope inner(scratch);
    first = scratch.Matrix(8, 8).data;
    Fill(scratch.Matrix(1000, 1000), 2);
  }
  EXPECT_EQ(scratch.Matrix(8, 8).data, first);
  EXPECT_TRUE(AllEqual(kept, 1));
}

TEST(ScratchTest, RepeatedStepsAllocateNothing) {
  Scratch scratch;
  const auto step = [&] {
    Scratch::Scope scope(scratch);
    scratch.Matrix(10, 1000);
    for (int layer = 0; layer < 3; ++layer) {
      Scratch::Scope inner(scratch);
      scratch.Matrix(100, 1000);
      scratch.Matrix(300, 1000 + layer);
    }
  };
  step();
  const int64_t bytes = scratch.ByteSize();
  EXPECT_GT(bytes, 0);
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(scratch.ByteSize(), bytes);
}

TEST(ScratchTest, EmptyMatricesAreFine) {
  Scratch scratch;
  Scratch::Scope scope(scratch);
  const MatrixView<float> empty = scratch.Matrix(0, 5);
  EXPECT_NE(empty.data, nullptr);
  EXPECT_NE(empty.data, scratch.Matrix(1, 1).data);
}

}  // namespace
}  // namespace kvm
