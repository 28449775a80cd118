#include "tools/stacked_state.h"

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kvm/io/safetensors.h"

namespace kvm {

std::vector<NamedTensor> StackStates(absl::Span<const SequenceState> sequences) {
  std::vector<NamedTensor> stacked;
  for (size_t b = 0; b < sequences.size(); ++b) {
    std::vector<NamedTensor> state = sequences[b].Export();
    if (b == 0) {
      for (const NamedTensor& named : state) {
        Shape shape = named.tensor.shape();
        if (!shape.empty()) shape.insert(shape.begin(), static_cast<int64_t>(sequences.size()));
        stacked.push_back({named.name, Tensor(named.tensor.dtype(), std::move(shape))});
      }
    }
    assert(state.size() == stacked.size());
    for (size_t i = 0; i < state.size(); ++i) {
      const Tensor& tensor = state[i].tensor;
      assert(state[i].name == stacked[i].name);
      const int64_t offset = tensor.shape().empty() ? 0 : static_cast<int64_t>(b) * tensor.byte_size();
      assert(offset + tensor.byte_size() <= stacked[i].tensor.byte_size());
      if (tensor.byte_size() == 0) continue;
      std::memcpy(static_cast<char*>(stacked[i].tensor.bytes()) + offset, tensor.bytes(),
                  static_cast<size_t>(tensor.byte_size()));
    }
  }
  return stacked;
}

absl::Status WriteStackedState(absl::Span<const SequenceState> sequences, const std::string& path) {
  const std::vector<NamedTensor> stacked = StackStates(sequences);
  std::vector<NamedTensorView> views;
  for (const NamedTensor& named : stacked) views.push_back({named.name, named.tensor.view()});
  return WriteSafetensors(path, std::move(views));
}

}  // namespace kvm
