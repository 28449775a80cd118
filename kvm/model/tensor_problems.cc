#include "kvm/model/tensor_problems.h"

#include <algorithm>
#include <utility>

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
std::string FormatLayers(std::vector<int> layers) {
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  if (layers.size() == 1) return absl::StrCat(layers[0]);
  std::vector<std::string> runs;
  for (size_t begin = 0, end; begin < layers.size(); begin = end) {
    end = begin + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    if (end - begin == 1) {
      runs.push_back(absl::StrCat(layers[begin]));
    } else {
      runs.push_back(absl::StrCat(layers[begin], end - begin == 2 ? "," : "..", layers[end - 1]));
    }
  }
  return absl::StrCat("{", absl::StrJoin(runs, ","), "}");
}

}  // namespace

std::optional<LayerName> SplitLayerName(absl::string_view name, absl::string_view layers) {
  if (!absl::ConsumePrefix(&name, layers)) return std::nullopt;
  const absl::string_view digits = name.substr(0, name.find('.'));
  LayerName split;
  if (!absl::SimpleAtoi(digits, &split.layer) || absl::StrCat(split.layer) != digits || split.layer < 0) {
    return std::nullopt;
  }
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
    GroupOf(absl::StrCat(split->rest, ": ", problem)).push_back(split->layer);
  } else {
    GroupOf(absl::StrCat(name, ": ", problem));
  }
}

void TensorProblems::AddMissingLayer(int layer) { GroupOf(": missing entirely").push_back(layer); }

std::vector<int>& TensorProblems::GroupOf(std::string text) {
  const auto [place, is_new] = groups_.try_emplace(std::move(text));
  if (is_new) order_.push_back(&*place);
  return place->second;
}

std::string TensorProblems::Join() const {
  std::string message;
  for (const Groups::value_type* group : order_) {
    if (!message.empty()) message += "; ";
    if (!group->second.empty()) absl::StrAppend(&message, layers_, FormatLayers(group->second));
    message += group->first;
  }
  return message;
}

}  // namespace kvm
