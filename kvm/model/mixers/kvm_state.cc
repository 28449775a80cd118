#include "kvm/model/mixers/kvm_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"

namespace kvm {

namespace {

constexpr char kRowOfToken[] = "row_of_token";

}  // namespace

KvmState::KvmState(ShiftHistory history, const KvmStateShape& shape)
    : QkvState(std::move(history)),
      window(shape.window),
      heads(shape.window.num_heads, SlotMemory(shape.window.qk_dim, shape.window.v_dim, shape.readout)),
      row_of_token(shape.provenance ? heads.size() : 0),
      shape_(shape) {}

int64_t KvmState::ByteSize() const {
  int64_t bytes = history.ByteSize() + window.ByteSize() + static_cast<int64_t>(gates.size() * sizeof(float));
  for (const SlotMemory& head : heads) bytes += head.ByteSize();
  for (const std::vector<int32_t>& rows : row_of_token) bytes += static_cast<int64_t>(rows.size() * sizeof(int32_t));
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
  if (!gates.empty()) gates.erase(gates.begin(), gates.begin() + (window.begin() - before) * shape_.window.num_heads);
}

void KvmState::Save(const StateWriter& out) const {
  history.Save(out.Part("shift"));
  window.Save(out.Part("window"));
  if (shape_.gated) {
    out.Tensor("gates", DType::kF32, {window.end() - window.begin(), shape_.window.num_heads}, gates.data());
  }
  out.Number("covered", covered);
  for (size_t h = 0; h < heads.size(); ++h) {
    const StateWriter head = out.Part(absl::StrCat("head.", h));
    heads[h].Save(head);
    if (shape_.provenance) head.Tensor(kRowOfToken, DType::kI32, {covered}, row_of_token[h].data());
  }
}

absl::Status KvmState::Restore(const StateReader& in, int64_t position) {
  const int64_t chunk = shape_.window.block_len, num_heads = shape_.window.num_heads;
  RETURN_IF_ERROR(history.Restore(in.Part("shift")));
  const int64_t begin = NewestBlocksBegin(position, chunk, shape_.window_chunks);
  RETURN_IF_ERROR(window.Restore(in.Part("window"), begin, position));
  if (shape_.gated) {
    gates.resize((position - begin) * num_heads);
    RETURN_IF_ERROR(in.Tensor("gates", DType::kF32, {position - begin, num_heads}, gates.data()));
  }
  // All of the first chunk as it comes, then what left the window.
  const int64_t taken_in = std::max(std::min(position, chunk), begin);
  ASSIGN_OR_RETURN(covered, in.Number("covered", taken_in, taken_in));
  // The first chunk's tokens are rows, merges need a row that is no sink, and no token makes two rows.
  const int64_t min_rows = std::max(std::min(position, chunk), taken_in > chunk ? shape_.num_sinks + 1 : 0);
  for (size_t h = 0; h < heads.size(); ++h) {
    const StateReader head = in.Part(absl::StrCat("head.", h));
    RETURN_IF_ERROR(heads[h].Restore(head, min_rows, taken_in));
    SlotRows rows = heads[h].Reserve(0);
    const absl::Status corrected = CorrectReadout(*shape_.readout_rule, rows).status();
    if (!corrected.ok()) {
      return absl::Status(corrected.code(), absl::StrCat("state ", in.FullName("head."), h, ": ", corrected.message()));
    }
    if (!shape_.provenance) continue;
    ASSIGN_OR_RETURN(row_of_token[h], head.Ints(kRowOfToken, covered, 0, heads[h].count() - 1));
  }
  return absl::OkStatus();
}

std::vector<NamedTensor> KvmState::Export() const {
  const int64_t num_heads = shape_.window.num_heads, rows = NumRows();
  Tensor keys(DType::kF32, {num_heads, rows, shape_.window.qk_dim});
  Tensor values(DType::kF32, {num_heads, rows, shape_.window.v_dim});
  Tensor radii(DType::kF32, {num_heads, rows, 1});
  const int64_t length = window.end() - window.begin();
  Tensor window_keys(DType::kF32, {num_heads, length, shape_.window.qk_dim});
  Tensor window_values(DType::kF32, {num_heads, length, shape_.window.v_dim});
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
