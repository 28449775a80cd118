#include "kvm/model/weights/mixer_parameters.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/delta_net_parameters.h"

namespace kvm {
namespace {

// From −1/2 to 1/2 over n channels; 0 for a single one.
double Centered(int64_t i, int64_t n) {
  return n == 1 ? 0.0 : static_cast<double>(i) / static_cast<double>(n - 1) - 0.5;
}

// z·|z| with z running from −1 to 1 within each head.
double Zigzag(int64_t i, int64_t head_dim) {
  const double z = 2 * Centered(i % head_dim, head_dim);
  return z * std::abs(z);
}

void AppendMatrix(const std::string& name, int64_t outputs, int64_t inputs, double gain,
                  std::vector<Parameter>* parameters) {
  parameters->push_back({absl::StrCat(name, ".weight"), {outputs, inputs}, Initialization::Orthogonal(gain), false});
}

void AppendBlockOutput(const std::string& name, int64_t outputs, int64_t inputs, std::vector<Parameter>* parameters) {
  parameters->push_back({absl::StrCat(name, ".weight"), {outputs, inputs}, Initialization::Orthogonal(1), true});
}

void AppendVector(const std::string& name, Shape shape, Initialization initialization,
                  std::vector<Parameter>* parameters) {
  parameters->push_back({name, std::move(shape), std::move(initialization), false});
}

// first [rank, inputs], second [outputs, rank].
void AppendLowRank(const std::string& first, const std::string& second, int64_t outputs, int64_t rank, int64_t inputs,
                   std::vector<Parameter>* parameters) {
  parameters->push_back({absl::StrCat(first, ".weight"), {rank, inputs}, Initialization::Fill(0), false});
  const double ratio = static_cast<double>(rank) / static_cast<double>(outputs);
  AppendMatrix(second, outputs, rank, 0.1 * std::sqrt(std::max(1.0, ratio)), parameters);
}

Initialization ValueGateBias(int64_t n) {
  return Initialization::Values([n](int64_t i) { return 0.73 - 0.4 * Centered(i, n); });
}

// What all attention-style mixers begin and end with; norms of queries and keys if `head_norms`.
void AppendProjectionParameters(const ProjectionSpec& spec, bool head_norms, const LayerPlace& place,
                                const std::string& prefix, std::vector<Parameter>* parameters) {
  const int64_t width = place.width;
  const HeadSizes heads = ResolveHeads(spec, width);
  const int64_t queries = heads.num_heads * heads.qk_dim;
  const int64_t keys = heads.num_kv_heads * heads.qk_dim;
  const int64_t values = heads.num_kv_heads * heads.v_dim;
  AppendMatrix(prefix + "c_q", queries, width, 1, parameters);
  AppendMatrix(prefix + "c_k", keys, width, 1, parameters);
  AppendMatrix(prefix + "c_v", values, width, 1, parameters);
  AppendBlockOutput(prefix + "c_proj", width, heads.num_heads * heads.v_dim, parameters);
  if (head_norms) {
    AppendNorm(prefix + "ln_q", heads.qk_dim, parameters);
    AppendNorm(prefix + "ln_k", heads.qk_dim, parameters);
  }

  const bool gated_after_shift = spec.value_residual() == ProjectionSpec::RWKV_POST_TOKEN_SHIFT;
  if (spec.token_shift()) {
    AppendVector(prefix + "x_q", {queries}, ShiftMix(0.2, place, queries), parameters);
    AppendVector(prefix + "x_k", {keys}, ShiftMix(0.7, place, keys), parameters);
    AppendVector(prefix + "x_v", {values}, ShiftMix(0.7, place, values), parameters);
  } else if (gated_after_shift && values == width) {
    // The gate's input has a shift of its own, which begins switched off when nothing else is shifted.
    AppendVector(prefix + "x_v", {values}, Initialization::Fill(0), parameters);
  }
  if (gated_after_shift && values != width) {
    AppendVector(prefix + "x_v_hidden", {width},
                 spec.token_shift() ? ShiftMix(0.7, place, width) : Initialization::Fill(0), parameters);
  }
  if (spec.value_residual() == ProjectionSpec::LINEAR) {
    AppendVector(prefix + "lamb", {}, Initialization::Fill(0.5), parameters);
  } else if (spec.value_residual() != ProjectionSpec::NONE) {
    AppendVector(prefix + "v_gate0", {1, 1, values}, ValueGateBias(values), parameters);
    AppendLowRank(prefix + "v_gate1", prefix + "v_gate2", values, ValueGateRank(spec, width), width, parameters);
  }
}

}  // namespace

Initialization ShiftMix(double exponent, const LayerPlace& place, int64_t n) {
  const double power = exponent * (1 - static_cast<double>(place.layer) / place.num_layers);
  return Initialization::Values(
      [power, n](int64_t i) { return 1 - std::pow(static_cast<double>(i) / static_cast<double>(n), power); });
}

void AppendNorm(const std::string& name, int64_t dim, std::vector<Parameter>* parameters) {
  AppendVector(name + ".weight", {dim}, Initialization::Fill(1), parameters);
  AppendVector(name + ".bias", {dim}, Initialization::Fill(0), parameters);
}

void AppendAttentionParameters(const AttentionSpec& spec, const LayerPlace& place, const std::string& prefix,
                               std::vector<Parameter>* parameters) {
  AppendProjectionParameters(spec.projections(), /*head_norms=*/true, place, prefix, parameters);
}

void AppendKvmParameters(const KvmSpec& spec, const LayerPlace& place, const std::string& prefix,
                         std::vector<Parameter>* parameters) {
  AppendProjectionParameters(spec.projections(), /*head_norms=*/true, place, prefix, parameters);
  const HeadSizes heads = ResolveHeads(spec.projections(), place.width);
  AppendNorm(prefix + "ln_s_k", heads.qk_dim, parameters);
  if (spec.gate_keys() || spec.gate_values()) {
    AppendVector(prefix + "key_weighting.weight", {heads.num_kv_heads, place.width}, Initialization::Fill(0),
                 parameters);
  }
  if (spec.head_temperatures()) {
    AppendVector(prefix + "front_head_temp", {heads.num_heads}, Initialization::Fill(1), parameters);
    AppendVector(prefix + "state_head_temp", {heads.num_heads}, Initialization::Fill(1), parameters);
  }
}

void AppendRwkv7Parameters(const Rwkv7Spec& spec, const LayerPlace& place, const std::string& prefix,
                           std::vector<Parameter>* parameters) {
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
    return -6 + 6 * std::pow(Centered(i, width) + 0.5, power) + 0.5 + 2.5 * Zigzag(i, head_dim);
  };
  const auto rate = [width, head_dim](int64_t i) {
    return -0.19 + 0.3 * Zigzag(i, head_dim) + 0.4 * Centered(i, width);
  };
  const auto removal = [width](int64_t i) { return 0.71 - 0.1 * Centered(i, width); };
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

void AppendBlockWindowParameters(const BlockWindowSpec& spec, const LayerPlace& place, const std::string& prefix,
                                 std::vector<Parameter>* parameters) {
  AppendProjectionParameters(spec.projections(), /*head_norms=*/true, place, prefix, parameters);
}

void AppendOvqParameters(const OvqSpec& spec, const LayerPlace& place, const std::string& prefix,
                         std::vector<Parameter>* parameters) {
  AppendProjectionParameters(spec.projections(), /*head_norms=*/false, place, prefix, parameters);
  AppendVector(prefix + "beta", {spec.projections().num_heads()}, Initialization::Fill(1), parameters);
}

void AppendMixerParameters(const MixerSpec& spec, const LayerPlace& place, const std::string& prefix,
                           std::vector<Parameter>* parameters) {
  switch (spec.kind_case()) {
    case MixerSpec::kAttention:
      return AppendAttentionParameters(spec.attention(), place, prefix, parameters);
    case MixerSpec::kKvm:
      return AppendKvmParameters(spec.kvm(), place, prefix, parameters);
    case MixerSpec::kRwkv7:
      return AppendRwkv7Parameters(spec.rwkv7(), place, prefix, parameters);
    case MixerSpec::kBlockWindow:
      return AppendBlockWindowParameters(spec.block_window(), place, prefix, parameters);
    case MixerSpec::kOvq:
      return AppendOvqParameters(spec.ovq(), place, prefix, parameters);
    case MixerSpec::kGatedDeltaNet:
      return AppendGatedDeltaNetParameters(spec.gated_delta_net(), place, prefix, parameters);
    case MixerSpec::kKimiDelta:
      return AppendKimiDeltaParameters(spec.kimi_delta(), place, prefix, parameters);
    case MixerSpec::KIND_NOT_SET:
      return;
  }
}

std::vector<std::string> UnreadTensors(const MixerSpec& spec, int64_t width, const std::string& prefix) {
  if (!HasProjections(spec)) return {};
  const ProjectionSpec& projections = Projections(spec);
  if (projections.token_shift()) return {};
  const bool read = projections.value_residual() == ProjectionSpec::RWKV_POST_TOKEN_SHIFT && ValueWidth(spec, width) == width;
  const bool made = projections.value_residual() == ProjectionSpec::RWKV || projections.value_residual() == ProjectionSpec::RWKV_POST_TOKEN_SHIFT;
  if (!made || read) return {};
  return {prefix + "x_v"};
}

}  // namespace kvm
