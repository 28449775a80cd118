#include "kvm/problem_list.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

TEST(JoinProblems, NamesAHundredAndCountsTheRest) {
  EXPECT_EQ(JoinProblems({"a"}), "a");
  EXPECT_EQ(JoinProblems({"a", "b"}), "a; b");
  const std::string hundred = absl::StrJoin(std::vector<std::string>(100, "x"), "; ");
  EXPECT_EQ(JoinProblems(std::vector<std::string>(100, "x")), hundred);
  EXPECT_EQ(JoinProblems(std::vector<std::string>(103, "x")), hundred + "; and 3 more");
}

}  // namespace
}  // namespace kvm
