// RWKV-7 time mixing.
//
// New tensors begin as parameter.h says; and, with s = i/(D−1) − 1/2 and z·|z|, z running from −1 to 1 within each
// head:
//   w0 = −6 + 6·(i/(D−1))^(1 + (l/(L−1))^0.3) + 0.5 + 2.5·z|z|;  a0 = −0.19 + 0.3·z|z| + 0.4·s
//   k_k = 0.71 − 0.1·s;  k_a = 1.02;  r_k = −0.04;  ln_x.weight = ((l + 1)/L)^0.7;  key orthogonal with gain 0.1

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kvm/base/format_count.h"
#include "kvm/model/stack/kinds/kind_sizes.h"
#include "kvm/model/stack/kinds/kinds.h"

namespace kvm {
namespace {

// Channels of a head in the published checkpoints.
constexpr int64_t kPublishedHeadSize = 64;

void CheckRwkv7(const MixerSpec& mixer, int64_t width, const std::string& path, StackChecker* check) {
  const Rwkv7Spec& spec = mixer.rwkv7();
  if (check->Whole(absl::StrCat(path, ".num_heads"), spec.num_heads(), 1) && width % spec.num_heads() != 0) {
    check->Add(absl::StrCat(path, ".num_heads"), absl::StrCat(spec.num_heads()),
               absl::StrCat("a divisor of the width (", width, ")"));
  }
  if (spec.has_decay_rank()) check->Whole(absl::StrCat(path, ".decay_rank"), spec.decay_rank(), 1);
  if (spec.has_in_context_rate_rank()) {
    check->Whole(absl::StrCat(path, ".in_context_rate_rank"), spec.in_context_rate_rank(), 1);
  }
  if (spec.has_value_rank()) check->Whole(absl::StrCat(path, ".value_rank"), spec.value_rank(), 1);
  if (spec.has_gate_rank()) check->Whole(absl::StrCat(path, ".gate_rank"), spec.gate_rank(), 1);
}

// z·|z| with z running from −1 to 1 within each head.
double Zigzag(int64_t i, int64_t head_dim) {
  const double z = 2 * CenteredChannel(i % head_dim, head_dim);
  return z * std::abs(z);
}

void AppendRwkv7Parameters(const MixerSpec& mixer, const LayerPlace& place, const std::string& prefix,
                           std::vector<Parameter>* parameters) {
  const Rwkv7Spec& spec = mixer.rwkv7();
  const int64_t width = place.width;
  const int64_t head_dim = width / spec.num_heads();
  const Rwkv7Ranks ranks = ResolveRanks(spec, width);
  const Shape row = {1, 1, width};
  if (spec.token_shift()) {
    AppendVector(prefix + "x_r", row, ShiftMix(0.2, place, width), parameters);
    AppendVector(prefix + "x_w", row, ShiftMix(0.9, place, width), parameters);
    AppendVector(prefix + "x_k", row, ShiftMix(0.7, place, width), parameters);
    AppendVector(prefix + "x_v", row, ShiftMix(0.7, place, width), parameters);
    AppendVector(prefix + "x_a", row, ShiftMix(0.9, place, width), parameters);
    AppendVector(prefix + "x_g", row, ShiftMix(0.2, place, width), parameters);
  }

  const double depth = place.num_layers == 1 ? 0.0 : static_cast<double>(place.layer) / (place.num_layers - 1);
  const double power = 1 + std::pow(depth, 0.3);
  const auto decay = [width, head_dim, power](int64_t i) {
    return -6 + 6 * std::pow(CenteredChannel(i, width) + 0.5, power) + 0.5 + 2.5 * Zigzag(i, head_dim);
  };
  const auto rate = [width, head_dim](int64_t i) {
    return -0.19 + 0.3 * Zigzag(i, head_dim) + 0.4 * CenteredChannel(i, width);
  };
  const auto removal = [width](int64_t i) { return 0.71 - 0.1 * CenteredChannel(i, width); };
  AppendVector(prefix + "w0", row, Initialization::Values(decay), parameters);
  AppendLowRank(prefix + "w1", prefix + "w2", width, ranks.decay, width, parameters);
  AppendVector(prefix + "a0", row, Initialization::Values(rate), parameters);
  AppendLowRank(prefix + "a1", prefix + "a2", width, ranks.in_context_rate, width, parameters);
  AppendVector(prefix + "v0", row, ValueGateBias(width), parameters);
  AppendLowRank(prefix + "v1", prefix + "v2", width, ranks.value, width, parameters);
  AppendLowRank(prefix + "g1", prefix + "g2", width, ranks.gate, width, parameters);
  AppendVector(prefix + "k_k", row, Initialization::Values(removal), parameters);
  AppendVector(prefix + "k_a", row, Initialization::Fill(1.02), parameters);
  AppendVector(prefix + "r_k", {spec.num_heads(), head_dim}, Initialization::Fill(-0.04), parameters);

  AppendMatrix(prefix + "receptance", width, width, 1, parameters);
  AppendMatrix(prefix + "key", width, width, 0.1, parameters);
  AppendMatrix(prefix + "value", width, width, 1, parameters);
  AppendBlockOutput(prefix + "output", width, width, parameters);
  const double norm_weight = std::pow(static_cast<double>(place.layer + 1) / place.num_layers, 0.7);
  AppendVector(prefix + "ln_x.weight", {width}, Initialization::Fill(norm_weight), parameters);
  AppendVector(prefix + "ln_x.bias", {width}, Initialization::Fill(0), parameters);
}

// A matrix [d, d] per head and the last input; always float32.
StateSize Rwkv7Size(const MixerSpec& mixer, int64_t width, const StateQuery&) {
  return {0, (width * (width / mixer.rwkv7().num_heads()) + width) * kFloatBytes};
}

MixerCost CostOfRwkv7(const MixerSpec& mixer, int64_t width, DType, int64_t) {
  // Per state element: 2 for κᵀS, 5 for the update, 2 for rᵀS.
  const double elements = static_cast<double>(width) * static_cast<double>(width / mixer.rwkv7().num_heads());
  return {9 * elements, sizeof(float) * elements};
}

HeadSizes Rwkv7Heads(const MixerSpec& mixer, int64_t width) {
  const int64_t heads = mixer.rwkv7().num_heads();
  return {heads, heads, width / heads, width / heads};
}

std::string DescribeRwkv7(const MixerSpec& mixer, int64_t width) {
  const HeadSizes heads = Rwkv7Heads(mixer, width);
  return absl::StrCat("RWKV-7, ", FormatCounted(heads.num_heads, "head"), " of ", heads.v_dim);
}

// Ranks are what tensors say.
void ResolveRwkv7(int64_t, MixerSpec* mixer) {
  Rwkv7Spec& spec = *mixer->mutable_rwkv7();
  spec.clear_decay_rank();
  spec.clear_in_context_rate_rank();
  spec.clear_value_rank();
  spec.clear_gate_rank();
}

void AdoptRanks(FindShape find, MixerSpec* mixer) {
  Rwkv7Spec& spec = *mixer->mutable_rwkv7();
  if (const int32_t rank = RankOf(find("w1.weight")); rank > 0) spec.set_decay_rank(rank);
  if (const int32_t rank = RankOf(find("a1.weight")); rank > 0) spec.set_in_context_rate_rank(rank);
  if (const int32_t rank = RankOf(find("v1.weight")); rank > 0) spec.set_value_rank(rank);
  if (const int32_t rank = RankOf(find("g1.weight")); rank > 0) spec.set_gate_rank(rank);
}

absl::Status FillRwkv7(const PatternSizes& sizes, MixerSpec* mixer) {
  if (sizes.rwkv_heads == 0 && sizes.width > kPublishedHeadSize && sizes.width % kPublishedHeadSize != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--width=", sizes.width, " is no multiple of ", kPublishedHeadSize,
                     ", the channels of an RWKV-7 head; say how many there are with --rwkv-heads"));
  }
  const int64_t heads =
      sizes.rwkv_heads > 0 ? sizes.rwkv_heads : std::max<int64_t>(1, sizes.width / kPublishedHeadSize);
  mixer->mutable_rwkv7()->set_num_heads(static_cast<int32_t>(heads));
  return absl::OkStatus();
}

constexpr MixerPattern kPatterns[] = {{'R', "rwkv7", "RWKV-7", FillRwkv7}};

}  // namespace

const MixerKind& Rwkv7Kind() {
  static const MixerKind kind = [] {
    MixerKind made;
    made.name = "rwkv7";
    made.field_number = MixerSpec::kRwkv7FieldNumber;
    made.check = CheckRwkv7;
    made.value_width = [](const MixerSpec&, int64_t width) { return width; };
    made.append_parameters = AppendRwkv7Parameters;
    made.state_size = Rwkv7Size;
    made.token_cost = CostOfRwkv7;
    made.describe = DescribeRwkv7;
    made.has_value_residual = [](const MixerSpec&) { return true; };
    made.anchor_shifts = [](const MixerSpec& mixer) { return mixer.rwkv7().token_shift(); };
    made.heads = Rwkv7Heads;
    made.resolve = ResolveRwkv7;
    made.adopt_sizes = AdoptRanks;
    made.is_recurrence = true;
    made.patterns = kPatterns;
    return made;
  }();
  return kind;
}

}  // namespace kvm
