#include "tools/report/stacked_state.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tensors/safetensors.h"

namespace kvm {
namespace {

// One sequence's tensors by name.
using StateTensors = std::map<std::string, Tensor>;

// Gives every sequence its row counts in the layers where sequences or heads differ in them.
void CompleteRowCounts(std::vector<StateTensors>* states) {
  std::vector<std::string> radii;
  for (const auto& [name, tensor] : states->front()) {
    if (absl::EndsWith(name, ".kvm_s_vlen")) radii.push_back(name);
  }
  for (const std::string& name : radii) {
    const std::string counts = absl::StrCat(absl::StripSuffix(name, "kvm_s_vlen"), "kvm_row_counts");
    const Shape& first = states->front().at(name).shape();
    const bool differ = std::any_of(states->begin(), states->end(), [&](const StateTensors& state) {
      return state.count(counts) > 0 || state.at(name).shape() != first;
    });
    if (!differ) continue;
    for (StateTensors& state : *states) {
      const Shape& shape = state.at(name).shape();  // [Hk, M, 1]
      state.emplace(counts, Tensor::FromInts({shape[0]}, std::vector<int64_t>(shape[0], shape[1])));
    }
  }
}

// The smallest shape that has room for one tensor of each sequence.
Shape CommonShape(const std::vector<StateTensors>& states, const std::string& name) {
  Shape common = states.front().at(name).shape();
  for (const StateTensors& state : states) {
    const Shape& shape = state.at(name).shape();
    assert(shape.size() == common.size());
    for (size_t i = 0; i < common.size(); ++i) common[i] = std::max(common[i], shape[i]);
  }
  return common;
}

// Copies a dense tensor into the corner of another, dimension by dimension.
void CopyIntoCorner(const char* from, absl::Span<const int64_t> from_shape, absl::Span<const int64_t> to_shape,
                    int64_t element_bytes, char* to) {
  if (from_shape == to_shape) {
    const int64_t bytes = NumElements(from_shape) * element_bytes;
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  const absl::Span<const int64_t> from_inner = from_shape.subspan(1), to_inner = to_shape.subspan(1);
  for (int64_t i = 0; i < from_shape[0]; ++i) {
    CopyIntoCorner(from + i * NumElements(from_inner) * element_bytes, from_inner, to_inner, element_bytes,
                   to + i * NumElements(to_inner) * element_bytes);
  }
}

Tensor Stacked(const std::vector<StateTensors>& states, const std::string& name) {
  const Shape common = CommonShape(states, name);
  const DType dtype = states.front().at(name).dtype();
  Shape shape = common;
  if (!shape.empty()) shape.insert(shape.begin(), static_cast<int64_t>(states.size()));
  Tensor stacked(dtype, std::move(shape));
  const int64_t bytes = NumElements(common) * SizeOf(dtype);
  for (size_t b = 0; b < states.size(); ++b) {
    const Tensor& tensor = states[b].at(name);
    const int64_t offset = common.empty() ? 0 : static_cast<int64_t>(b) * bytes;
    CopyIntoCorner(static_cast<const char*>(tensor.bytes()), tensor.shape(), common, SizeOf(dtype),
                   static_cast<char*>(stacked.bytes()) + offset);
  }
  return stacked;
}

}  // namespace

absl::StatusOr<std::vector<NamedTensor>> StackStates(absl::Span<const SequenceState> sequences) {
  std::vector<StateTensors> states;
  for (const SequenceState& sequence : sequences) {
    StateTensors& tensors = states.emplace_back();
    ASSIGN_OR_RETURN(std::vector<NamedTensor> exported, sequence.Export());
    for (NamedTensor& named : exported) tensors.emplace(named.name, std::move(named.tensor));
  }
  CompleteRowCounts(&states);
  std::vector<NamedTensor> stacked;
  for (const auto& [name, tensor] : states.front()) stacked.push_back({name, Stacked(states, name)});
  return stacked;
}

absl::Status WriteStackedState(absl::Span<const SequenceState> sequences, const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<NamedTensor> stacked, StackStates(sequences));
  std::vector<NamedTensorView> views;
  for (const NamedTensor& named : stacked) views.push_back({named.name, named.tensor.view()});
  return WriteSafetensors(path, std::move(views));
}

}  // namespace kvm
