#include "kvm/model/weights/tensor_problems.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "kvm/kernels/dtype.h"

namespace kvm {
namespace {

bool IsFloatingPoint(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF64;
}

// "7", or "{0..11,14}" for several.
std::string FormatNumbers(std::vector<int> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  if (numbers.size() == 1) return absl::StrCat(numbers[0]);
  std::vector<std::string> runs;
  for (size_t begin = 0, end; begin < numbers.size(); begin = end) {
    end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (end - begin == 1) {
      runs.push_back(absl::StrCat(numbers[begin]));
    } else {
      runs.push_back(absl::StrCat(numbers[begin], end - begin == 2 ? "," : "..", numbers[end - 1]));
    }
  }
  return absl::StrCat("{", absl::StrJoin(runs, ","), "}");
}

// A number without needless zeros.
bool ParseNumber(absl::string_view digits, int* number) {
  return absl::SimpleAtoi(digits, number) && absl::StrCat(*number) == digits && *number >= 0;
}

struct Entry {
  std::string name;  // in which braces stand for several numbers
  std::string problem;
};

// Where the digits of the place-th number of a name are, from 0; numbers in braces count as one. Empty when there is no
// such number.
absl::string_view FindDigits(absl::string_view name, int place) {
  for (size_t begin = 0, end; begin < name.size(); begin = end) {
    end = begin + 1;
    if (name[begin] == '{') {
      end = std::min(name.find('}', begin), name.size() - 1) + 1;
      if (place-- == 0) return {};
    } else if (absl::ascii_isdigit(static_cast<unsigned char>(name[begin]))) {
      while (end < name.size() && absl::ascii_isdigit(static_cast<unsigned char>(name[end]))) ++end;
      if (place-- == 0) return name.substr(begin, end - begin);
    }
  }
  return {};
}

// Makes one of entries that differ in the place-th number of their names alone; the others stay as they are.
std::vector<Entry> MergeNumbers(const std::vector<Entry>& entries, int place) {
  constexpr size_t kFewest = 3;  // two names are read faster than braces
  struct Group {
    std::vector<int> numbers;
    std::vector<size_t> members;
  };
  std::map<std::array<absl::string_view, 3>, Group> groups;  // before and behind the number, the problem
  std::vector<const Group*> group_of(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const absl::string_view name = entries[i].name;
    const absl::string_view digits = FindDigits(name, place);
    int number = 0;
    if (digits.empty() || !ParseNumber(digits, &number)) continue;
    const size_t begin = static_cast<size_t>(digits.data() - name.data());
    Group& group = groups[{name.substr(0, begin), name.substr(begin + digits.size()), entries[i].problem}];
    group.numbers.push_back(number);
    group.members.push_back(i);
    group_of[i] = &group;
  }
  std::vector<Entry> merged;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Group* const group = group_of[i];
    if (group == nullptr || group->members.size() < kFewest) {
      merged.push_back(entries[i]);
    } else if (group->members[0] == i) {
      const absl::string_view name = entries[i].name;
      const absl::string_view digits = FindDigits(name, place);
      const size_t begin = static_cast<size_t>(digits.data() - name.data());
      merged.push_back(
          {absl::StrCat(name.substr(0, begin), FormatNumbers(group->numbers), name.substr(begin + digits.size())),
           entries[i].problem});
    }
  }
  return merged;
}

}  // namespace

std::optional<LayerName> SplitLayerName(absl::string_view name, absl::string_view layers) {
  if (!absl::ConsumePrefix(&name, layers)) return std::nullopt;
  const absl::string_view digits = name.substr(0, name.find('.'));
  LayerName split;
  if (!ParseNumber(digits, &split.layer)) return std::nullopt;
  split.rest = name.substr(digits.size());
  return split;
}

std::string ProblemOf(const std::optional<TensorInfo>& tensor, const Shape& expected) {
  if (!tensor.has_value()) return absl::StrCat("missing, expected shape ", ToString(expected));
  if (tensor->shape != expected) {
    return absl::StrCat("has shape ", ToString(tensor->shape), ", expected ", ToString(expected));
  }
  if (!IsFloatingPoint(tensor->dtype)) {
    return absl::StrCat("has dtype ", Name(tensor->dtype), ", expected F32, BF16, F16 or F64");
  }
  return "";
}

void TensorProblems::Add(absl::string_view name, absl::string_view problem) {
  const std::optional<LayerName> split = SplitLayerName(name, layers_);
  if (split.has_value()) {
    GroupOf(split->rest, problem).push_back(split->layer);
  } else {
    GroupOf(name, problem);
  }
}

void TensorProblems::AddMissingLayer(int layer) { GroupOf("", "missing entirely").push_back(layer); }

std::vector<int>& TensorProblems::GroupOf(absl::string_view rest, absl::string_view problem) {
  const auto [place, is_new] = groups_.try_emplace({std::string(rest), std::string(problem)});
  if (is_new) order_.push_back(&*place);
  return place->second;
}

std::string TensorProblems::Join() const {
  std::vector<Entry> entries;
  for (const Groups::value_type* group : order_) {
    const auto& [rest, problem] = group->first;
    const std::vector<int>& layers = group->second;
    entries.push_back({layers.empty() ? rest : absl::StrCat(layers_, FormatNumbers(layers), rest), problem});
  }
  constexpr int kMostPlaces = 4;
  for (int place = 0; place < kMostPlaces; ++place) entries = MergeNumbers(entries, place);
  return absl::StrJoin(entries, "; ", [](std::string* out, const Entry& entry) {
    absl::StrAppend(out, entry.name, ": ", entry.problem);
  });
}

}  // namespace kvm
