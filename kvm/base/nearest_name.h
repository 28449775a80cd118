#ifndef KVM_BASE_NEAREST_NAME_H_
#define KVM_BASE_NEAREST_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace kvm {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
int EditDistance(absl::string_view a, absl::string_view b);

// The name most like `word`: the first of those at the smallest edit distance, where beginnings of names count as near.
// Empty when none is near enough to be a slip of the keyboard.
std::string NearestName(absl::string_view word, const std::vector<std::string>& names);

// "; did you mean --width?" for the nearest name, or nothing.
std::string DidYouMean(absl::string_view word, const std::vector<std::string>& names, absl::string_view prefix);

}  // namespace kvm

#endif  // KVM_BASE_NEAREST_NAME_H_
