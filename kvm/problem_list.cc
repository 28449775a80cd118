#include "kvm/problem_list.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace kvm {

std::string JoinProblems(const std::vector<std::string>& problems) {
  constexpr size_t kMost = 100;
  if (problems.size() <= kMost) return absl::StrJoin(problems, "; ");
  return absl::StrCat(absl::StrJoin(problems.begin(), problems.begin() + kMost, "; "), "; and ",
                      problems.size() - kMost, " more");
}

}  // namespace kvm
