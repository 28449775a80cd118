#include "kvm/kernels/check_view.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace kvm {
namespace {

using View = MatrixView<float>;

void NeedsView(View x, int64_t rows, int64_t cols) { CheckView(x, rows, cols, "x"); }
void NeedsAnyView(View x) { CheckView(x, "x"); }
void NeedsApart(View out, View x) { CheckApart(out, x, "out to share no memory with x"); }
void NeedsSameOrApart(View out, View x) { CheckSameOrApart(out, x, "out to be x or apart from it"); }

class CheckViewDeathTest : public ::testing::Test {
 protected:
  CheckViewDeathTest() : memory_(100) {}
  // [rows, cols] from element `first` on, rows 10 elements apart.
  View At(int64_t first, int64_t rows, int64_t cols) { return {memory_.data() + first, rows, cols, 10}; }

  std::vector<float> memory_;
};

TEST_F(CheckViewDeathTest, ShapesThatFitPass) {
  NeedsView(At(0, 10, 10), 10, 10);
  NeedsView(At(0, 4, 3), 4, 3);
  NeedsView(View(nullptr, 0, 5), 0, 5);
  NeedsView(View(nullptr, 5, 0), 5, 0);
  NeedsView(View(memory_.data(), 1, 5, 0), 1, 5);
  NeedsAnyView(At(0, 4, 3));
  NeedsAnyView(View());
}

TEST_F(CheckViewDeathTest, OtherShapesAreNamedWithTheOneExpected) {
  EXPECT_DEATH(NeedsView(At(0, 4, 3), 5, 3), "^NeedsView: x is \\[4, 3\\], expected \\[5, 3\\] \\(.*check_view_test");
  EXPECT_DEATH(NeedsView(At(0, 4, 3), 4, 2), "^NeedsView: x is \\[4, 3\\], expected \\[4, 2\\]");
  EXPECT_DEATH(NeedsAnyView(At(0, -1, 3)), "^NeedsAnyView: x is \\[-1, 3\\], expected no negative extent");
  EXPECT_DEATH(NeedsAnyView(View(nullptr, 2, 3)), "x is \\[2, 3\\] at a null address, expected memory");
  EXPECT_DEATH(NeedsAnyView(View(memory_.data(), 2, 5, 4)), "rows of x are 4 elements apart, expected at least its 5");
}

TEST_F(CheckViewDeathTest, ApartAreOtherRowsAndOtherColumns) {
  NeedsApart(At(0, 5, 10), At(50, 5, 10));
  NeedsApart(At(50, 5, 10), At(0, 5, 10));
  NeedsApart(At(0, 10, 4), At(4, 10, 6));
  NeedsApart(At(4, 10, 6), At(0, 10, 4));
  NeedsApart(At(20, 5, 4), At(4, 5, 6));
  NeedsApart(At(0, 1, 5), At(5, 1, 5));
  // A row between the columns of another matrix, and a matrix without gaps in a gap.
  NeedsApart(At(36, 1, 4), At(0, 10, 6));
  NeedsApart(At(0, 10, 6), At(36, 1, 4));
  NeedsApart(At(0, 10, 6), View(&memory_[46], 2, 2));
  NeedsApart(At(0, 3, 6), View(&memory_[26], 10, 5));
  NeedsApart(At(0, 10, 10), At(0, 0, 10));
  NeedsApart(View(), View());
}

TEST_F(CheckViewDeathTest, SharedElementsAreRefused) {
  const char kMessage[] = "^NeedsApart: expected out to share no memory with x";
  EXPECT_DEATH(NeedsApart(At(0, 5, 10), At(0, 5, 10)), kMessage);
  EXPECT_DEATH(NeedsApart(At(0, 5, 10), At(40, 5, 10)), kMessage);
  EXPECT_DEATH(NeedsApart(At(0, 10, 5), At(4, 10, 6)), kMessage);
  EXPECT_DEATH(NeedsApart(At(4, 10, 6), At(0, 10, 5)), kMessage);
  EXPECT_DEATH(NeedsApart(At(0, 1, 5), At(4, 1, 5)), kMessage);
  EXPECT_DEATH(NeedsApart(At(35, 1, 4), At(0, 10, 6)), kMessage);
  EXPECT_DEATH(NeedsApart(At(0, 10, 6), At(36, 1, 5)), kMessage);
  EXPECT_DEATH(NeedsApart(At(0, 10, 6), View(&memory_[45], 2, 2)), kMessage);
  EXPECT_DEATH(NeedsApart(At(0, 3, 6), View(&memory_[25], 10, 5)), kMessage);
}

TEST_F(CheckViewDeathTest, InPlaceIsAllowedWhereItIsMeant) {
  NeedsSameOrApart(At(0, 5, 10), At(0, 5, 10));
  NeedsSameOrApart(At(0, 5, 10), At(50, 5, 10));
  EXPECT_DEATH(NeedsSameOrApart(At(1, 5, 5), At(0, 5, 5)), "^NeedsSameOrApart: expected out to be x or apart from it");
}

}  // namespace
}  // namespace kvm
