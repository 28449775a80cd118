#include "kvm/model/mixers/kvm_state.h"

#include <algorithm>
#include <utility>

namespace kvm {

KvmState::KvmState(ShiftHistory history, const BlockWindowShape& window_shape, DType readout)
    : history(std::move(history)),
      window(window_shape),
      heads(window_shape.num_heads, SlotMemory(window_shape.qk_dim, window_shape.v_dim, readout)),
      shape_(window_shape) {}

int64_t KvmState::ByteSize() const {
  int64_t bytes = history.ByteSize() + window.ByteSize() + static_cast<int64_t>(gates.size() * sizeof(float));
  for (const SlotMemory& head : heads) bytes += head.ByteSize();
  return bytes;
}

int64_t KvmState::NumRows() const {
  int64_t most = 0;
  for (const SlotMemory& head : heads) most = std::max(most, head.count());
  return most;
}

void KvmState::DropBefore(int64_t position) {
  const int64_t before = window.begin();
  window.DropBefore(position);
  if (!gates.empty()) gates.erase(gates.begin(), gates.begin() + (window.begin() - before) * shape_.num_heads);
}

std::vector<NamedTensor> KvmState::Export() const {
  const int64_t num_heads = shape_.num_heads, rows = NumRows();
  Tensor keys(DType::kF32, {num_heads, rows, shape_.qk_dim});
  Tensor values(DType::kF32, {num_heads, rows, shape_.v_dim});
  Tensor radii(DType::kF32, {num_heads, rows, 1});
  const int64_t length = window.end() - window.begin();
  Tensor window_keys(DType::kF32, {num_heads, length, shape_.qk_dim});
  Tensor window_values(DType::kF32, {num_heads, length, shape_.v_dim});
  for (int64_t h = 0; h < num_heads; ++h) {
    const auto copy = [h, rows](absl::Span<const float> from, Tensor& to) {
      std::copy(from.begin(), from.end(), to.floats().begin() + h * rows * to.shape()[2]);
    };
    copy(heads[h].key_sums(), keys);
    copy(heads[h].value_sums(), values);
    copy(heads[h].radii(), radii);
    const auto rows_of = [h, length](Tensor& t) {
      const int64_t dim = t.shape()[2];
      return MatrixView<float>(t.floats().data() + h * length * dim, length, dim);
    };
    window.Read(h, window.begin(), length, rows_of(window_keys), rows_of(window_values));
  }

  std::vector<NamedTensor> tensors;
  history.Export(&tensors);
  tensors.push_back({"kvm_s_k", std::move(keys)});
  tensors.push_back({"kvm_s_v", std::move(values)});
  tensors.push_back({"kvm_s_vlen", std::move(radii)});
  std::vector<int64_t> counts;
  for (const SlotMemory& head : heads) counts.push_back(head.count());
  if (std::count(counts.begin(), counts.end(), rows) != num_heads) {
    tensors.push_back({"kvm_row_counts", Tensor::FromInts({num_heads}, counts)});
  }
  tensors.push_back({"kvm_state_coverage_len", Tensor::FromInts({}, {covered})});
  tensors.push_back({"kvm_bswa_begin", Tensor::FromInts({}, {window.begin()})});
  tensors.push_back({"kvm_bswa_k", std::move(window_keys)});
  tensors.push_back({"kvm_bswa_v", std::move(window_values)});
  Tensor by_head(DType::kF32, {num_heads, length, 1});
  for (int64_t h = 0; h < num_heads; ++h) {
    for (int64_t i = 0; i < length; ++i) {
      by_head.floats()[h * length + i] = gates.empty() ? 1.0f : gates[i * num_heads + h];
    }
  }
  tensors.push_back({"kvm_bswa_merge_gate", std::move(by_head)});
  return tensors;
}

}  // namespace kvm
