#include "kvm/model/mixers/delta_net_state.h"

#include <cassert>

#include "kvm/base/status_macros.h"

namespace kvm {

Tensor ConvolutionHistory::Export() const {
  Tensor exported(DType::kF32, {channels, rows});
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t r = 0; r < rows; ++r) exported.floats()[c * rows + r] = values[r * channels + c];
  }
  return exported;
}

void ConvolutionHistory::Import(absl::Span<const float> exported) {
  assert(exported.size() == values.size());
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t r = 0; r < rows; ++r) values[r * channels + c] = exported[c * rows + r];
  }
}

void ConvolutionHistory::Save(absl::string_view name, const StateWriter& out) const {
  out.Tensor(name, DType::kF32, {rows, channels}, values.data());
}

absl::Status ConvolutionHistory::Restore(absl::string_view name, const StateReader& in) {
  return in.Tensor(name, DType::kF32, {rows, channels}, values.data());
}

DeltaNetState::DeltaNetState(const DeltaNetSpec& spec)
    : recurrent(DType::kF32, {spec.num_value_heads, spec.qk_dim, spec.v_dim}),
      conv_q(spec.history(), spec.qk_width()),
      conv_k(spec.history(), spec.qk_width()),
      conv_v(spec.history(), spec.value_width()) {}

std::unique_ptr<MixerState> DeltaNetState::Clone() const {
  auto copy = std::unique_ptr<DeltaNetState>(new DeltaNetState);
  copy->recurrent = recurrent.Clone();
  copy->conv_q = conv_q;
  copy->conv_k = conv_k;
  copy->conv_v = conv_v;
  return copy;
}

int64_t DeltaNetState::ByteSize() const {
  const size_t histories = conv_q.values.size() + conv_k.values.size() + conv_v.values.size();
  return recurrent.byte_size() + static_cast<int64_t>(histories * sizeof(float));
}

void DeltaNetState::Save(const StateWriter& out) const {
  out.Tensor("recurrent", recurrent.dtype(), recurrent.shape(), recurrent.bytes());
  conv_q.Save("conv_q", out);
  conv_k.Save("conv_k", out);
  conv_v.Save("conv_v", out);
}

absl::Status DeltaNetState::Restore(const StateReader& in, int64_t) {
  RETURN_IF_ERROR(in.Tensor("recurrent", recurrent.dtype(), recurrent.shape(), recurrent.bytes()));
  RETURN_IF_ERROR(conv_q.Restore("conv_q", in));
  RETURN_IF_ERROR(conv_k.Restore("conv_k", in));
  return conv_v.Restore("conv_v", in);
}

std::vector<NamedTensor> DeltaNetState::Export() const {
  std::vector<NamedTensor> tensors;
  tensors.push_back({"recurrent", recurrent.Clone()});
  if (conv_q.rows == 0) return tensors;
  tensors.push_back({"conv_q", conv_q.Export()});
  tensors.push_back({"conv_k", conv_k.Export()});
  tensors.push_back({"conv_v", conv_v.Export()});
  return tensors;
}

}  // namespace kvm
