#include "kvm/state/snapshot/snapshot_testing.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "kvm/base/status_macros.h"
#include "kvm/state/host_layer_state.h"
#include "kvm/state/state_fields.h"

namespace kvm {
namespace {

constexpr int64_t kColumns = 3;

// Names, numbers and bytes of all that a state consists of.
std::vector<std::string> Describe(const SequenceState& state) {
  StateFields fields;
  if (!state.Save(StateWriter(&fields)).ok()) return {"broken"};
  std::vector<std::string> lines;
  for (const StateNumber& number : fields.numbers) lines.push_back(number.name + "=" + std::to_string(number.value));
  for (const StateTensor& tensor : fields.tensors) {
    lines.push_back(tensor.name + ToString(tensor.view.shape));
    lines.emplace_back(static_cast<const char*>(tensor.view.data), static_cast<size_t>(tensor.view.byte_size()));
  }
  return lines;
}

bool AreEqual(const SamplerState& a, const SamplerState& b) {
  return a.draws == b.draws && a.options.temperature == b.options.temperature && a.options.top_k == b.options.top_k &&
         a.options.top_p == b.options.top_p && a.options.min_p == b.options.min_p &&
         a.options.repetition_penalty == b.options.repetition_penalty && a.options.seed == b.options.seed;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace

RowsState::RowsState(int64_t count, float first)
    : rows(static_cast<size_t>(count * kColumns)), marks(static_cast<size_t>(count)) {
  std::iota(rows.begin(), rows.end(), first);
  std::iota(marks.begin(), marks.end(), static_cast<int8_t>(1));
}

void RowsState::Save(const StateWriter& out) const {
  out.Number("count", NumRows());
  out.Tensor("rows", DType::kF32, {NumRows(), kColumns}, rows.data());
  out.Tensor("marks", DType::kI8, {NumRows()}, marks.data());
}

absl::Status RowsState::Restore(const StateReader& in, int64_t) {
  ASSIGN_OR_RETURN(const int64_t count, in.Number("count", 0, int64_t{1} << 40));
  RETURN_IF_ERROR(in.View("rows", DType::kF32, {count, kColumns}).status());
  RETURN_IF_ERROR(in.View("marks", DType::kI8, {count}).status());
  rows.resize(static_cast<size_t>(count * kColumns));
  marks.resize(static_cast<size_t>(count));
  RETURN_IF_ERROR(in.Tensor("rows", DType::kF32, {count, kColumns}, rows.data()));
  return in.Tensor("marks", DType::kI8, {count}, marks.data());
}

SequenceState FreshSequence() {
  std::vector<HostLayerState> layers(2);
  layers[0].mixer = CopyOnWrite<MixerState>(std::make_unique<RowsState>());
  layers[0].mlp_shift.resize(5);
  layers[1].mixer = CopyOnWrite<MixerState>(std::make_unique<RowsState>());
  layers[1].anchor_shift.resize(2);
  return NewHostSequence(/*stack_id=*/42, std::move(layers));
}

Session TestSession(int variant, int64_t tokens, int64_t rows) {
  const float first = static_cast<float>(variant);
  Session session;
  session.state = FreshSequence();
  SequenceAccess::EndPass(session.state, tokens);
  HostLayer(session.state, 0).mixer = CopyOnWrite<MixerState>(std::make_unique<RowsState>(rows, first));
  HostLayer(session.state, 1).mixer =
      CopyOnWrite<MixerState>(std::make_unique<RowsState>(rows > 0 ? 1 : 0, first + 100));
  std::iota(HostLayer(session.state, 0).mlp_shift.begin(), HostLayer(session.state, 0).mlp_shift.end(), first + 0.5f);
  session.tokens.resize(static_cast<size_t>(tokens));
  std::iota(session.tokens.begin(), session.tokens.end(), variant);
  if (tokens > 0) session.logits = {first, -0.0f, 1e30f};
  session.sampler = SamplerState{{0.5, 40, 0.9, 0.05, 1.1, ~uint64_t{0} - static_cast<uint64_t>(variant)}, 77};
  return session;
}

ModelIdentity TestIdentity() { return {0x0123456789abcdefu, WeightType::kAsStored, DType::kBF16, false, "width: 3"}; }

bool AreEqual(const Session& a, const Session& b) {
  if (a.sampler.has_value() != b.sampler.has_value()) return false;
  if (a.sampler.has_value() && !AreEqual(*a.sampler, *b.sampler)) return false;
  return a.state.position() == b.state.position() && Describe(a.state) == Describe(b.state) && a.tokens == b.tokens &&
         SameBits(a.logits, b.logits);
}

}  // namespace kvm
