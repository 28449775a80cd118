#include "kvm/base/nearest_name.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace kvm {

int EditDistance(absl::string_view a, absl::string_view b) {
  // Rows of the usual table for the prefixes of `a`: the one being filled and the two before it.
  std::vector<int> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substitution = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string NearestName(absl::string_view word, const std::vector<std::string>& names) {
  const int limit = std::max<int>(1, static_cast<int>(word.size()) / 3);
  std::string nearest;
  int smallest = limit + 1;
  for (const std::string& name : names) {
    const bool is_beginning = word.size() >= 3 && absl::StartsWith(name, word);
    const int distance = is_beginning ? 1 : EditDistance(word, name);
    if (distance < smallest) {
      smallest = distance;
      nearest = name;
    }
  }
  return nearest;
}

std::string DidYouMean(absl::string_view word, const std::vector<std::string>& names, absl::string_view prefix) {
  const std::string nearest = NearestName(word, names);
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", prefix, nearest, "?");
}

}  // namespace kvm
