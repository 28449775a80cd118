#include "kvm/problem_list.h"

#include "gtest/gtest.h"

namespace kvm {
namespace {

TEST(JoinProblems, NamesTenAndCountsTheRest) {
  EXPECT_EQ(JoinProblems({"a"}), "a");
  EXPECT_EQ(JoinProblems({"a", "b"}), "a; b");
  EXPECT_EQ(JoinProblems(std::vector<std::string>(10, "x")), "x; x; x; x; x; x; x; x; x; x");
  EXPECT_EQ(JoinProblems(std::vector<std::string>(13, "x")), "x; x; x; x; x; x; x; x; x; x; and 3 more");
}

}  // namespace
}  // namespace kvm
