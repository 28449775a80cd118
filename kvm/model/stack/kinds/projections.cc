#include "kvm/model/stack/kinds/projections.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kvm/base/format_count.h"
#include "kvm/model/stack/kinds/kind_sizes.h"

namespace kvm {
namespace {

void CheckRotary(const ProjectionSpec& spec, RotaryUse use, bool sizes_known, int64_t width, const std::string& path,
                 StackChecker* check) {
  if (use == RotaryUse::kNone) return;
  const std::string field = absl::StrCat(path, ".rotary_dim"), got = absl::StrCat(spec.rotary_dim());
  const bool dim_known = check->Whole(field, spec.rotary_dim(), 0);
  if (dim_known && spec.rotary_dim() % 2 != 0) check->Add(field, got, "an even number");
  if (dim_known && sizes_known && width >= 1) {
    const int64_t channels = ResolveHeads(spec, width).qk_dim;
    if (spec.rotary_dim() > channels) {
      check->Add(field, got, absl::StrCat("at most the ", channels, " channels of a head"));
    } else if (use == RotaryUse::kNotAllChannels && spec.rotary_dim() == channels) {
      check->Add(field, got,
                 absl::StrCat("less than the ", channels,
                              " channels of a head, as state keys hold only channels without rotary embedding"));
    }
  }
  // Frequencies are its powers of -1 to 0.
  if (!(spec.rotary_theta() >= 1e-6 && spec.rotary_theta() <= 1e30)) {
    check->Add(absl::StrCat(path, ".rotary_theta"), NumberText(spec.rotary_theta()), "a number from 0.000001 to 1e30");
  }
}

}  // namespace

void CheckProjections(const ProjectionSpec& spec, int64_t width, RotaryUse rotary, const std::string& path,
                      StackChecker* check) {
  bool sizes_known = check->Whole(absl::StrCat(path, ".num_heads"), spec.num_heads(), 1);
  if (spec.has_num_kv_heads()) {
    if (!check->Whole(absl::StrCat(path, ".num_kv_heads"), spec.num_kv_heads(), 1)) {
      sizes_known = false;
    } else if (sizes_known && spec.num_heads() % spec.num_kv_heads() != 0) {
      check->Add(absl::StrCat(path, ".num_kv_heads"), absl::StrCat(spec.num_kv_heads()),
                 absl::StrCat("a divisor of the number of heads (", spec.num_heads(), ")"));
      sizes_known = false;
    }
  }
  if (spec.has_qk_head_dim()) {
    sizes_known = check->Whole(absl::StrCat(path, ".qk_head_dim"), spec.qk_head_dim(), 1) && sizes_known;
  }
  if (spec.has_v_head_dim()) {
    sizes_known = check->Whole(absl::StrCat(path, ".v_head_dim"), spec.v_head_dim(), 1) && sizes_known;
  }
  if (sizes_known && (!spec.has_qk_head_dim() || !spec.has_v_head_dim()) && width % spec.num_heads() != 0) {
    check->Add(absl::StrCat(path, ".num_heads"), absl::StrCat(spec.num_heads()),
               absl::StrCat("a divisor of the width (", width, ") unless head sizes are given"));
    sizes_known = false;
  }

  if (sizes_known && width >= 1) {
    const HeadSizes heads = ResolveHeads(spec, width);
    check->Whole(absl::StrCat(path, ".qk_head_dim times num_heads"), heads.num_heads * heads.qk_dim, 1);
    check->Whole(absl::StrCat(path, ".v_head_dim times num_heads"), heads.num_heads * heads.v_dim, 1);
  }
  CheckRotary(spec, rotary, sizes_known, width, path, check);
  if (spec.has_value_gate_rank()) check->Whole(absl::StrCat(path, ".value_gate_rank"), spec.value_gate_rank(), 1);
}

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

int64_t ShiftHistoryBytes(const ProjectionSpec& spec, int64_t width) {
  const HeadSizes heads = ResolveHeads(spec, width);
  int64_t channels = 0;
  if (spec.token_shift()) {
    channels += heads.num_heads * heads.qk_dim + heads.num_kv_heads * (heads.qk_dim + heads.v_dim) + width;
  } else if (spec.value_residual() == ProjectionSpec::RWKV_POST_TOKEN_SHIFT) {
    channels += width;
  }
  return channels * static_cast<int64_t>(sizeof(float));
}

int64_t BlocksOf(int64_t positions, int64_t block_len) { return (positions + block_len - 1) / block_len; }

int64_t WindowBegin(int64_t total, int64_t chunk, int64_t window_chunks) {
  return std::max<int64_t>(0, (total + chunk - 1) / chunk * chunk - chunk * window_chunks);
}

MixerCost CostOfKeys(const HeadSizes& heads, int64_t keys, DType dtype) {
  const int64_t channels = heads.qk_dim + heads.v_dim;
  MixerCost cost;
  cost.flop = 2 * SizeProduct(heads.num_heads, channels, keys);
  // Integers have a scale for each key and each value.
  const int64_t scales = dtype == DType::kI8 ? 2 * static_cast<int64_t>(sizeof(float)) : 0;
  cost.bytes = SizeProduct(heads.num_kv_heads, channels * SizeOf(dtype) + scales, keys);
  return cost;
}

std::string DescribeHeads(const ProjectionSpec& projections, int64_t width) {
  const HeadSizes heads = ResolveHeads(projections, width);
  std::string text = absl::StrCat(FormatCounted(heads.num_heads, "head"), " of ", heads.qk_dim);
  if (heads.v_dim != heads.qk_dim) absl::StrAppend(&text, "/", heads.v_dim);
  if (heads.num_kv_heads != heads.num_heads)
    absl::StrAppend(&text, ", ", FormatCounted(heads.num_kv_heads, "key/value head"));
  return text;
}

std::string DescribeRotary(const ProjectionSpec& projections) {
  return absl::StrCat(", rotary ", projections.rotary_dim());
}

std::string DescribeWindow(int64_t chunks, int64_t chunk_len) {
  return absl::StrCat("window ", FormatCounted(chunks, "chunk"), " of ", chunk_len);
}

void FillProjections(const PatternSizes& sizes, ProjectionSpec* projections) {
  projections->set_num_heads(static_cast<int32_t>(sizes.heads));
  if (sizes.kv_heads > 0) projections->set_num_kv_heads(static_cast<int32_t>(sizes.kv_heads));
  projections->set_rotary_dim(static_cast<int32_t>(sizes.rotary));
  projections->set_token_shift(sizes.token_shift);
}

namespace projections_internal {

bool HasValueResidual(const ProjectionSpec& spec) { return spec.value_residual() != ProjectionSpec::NONE; }

int64_t ValueWidth(const ProjectionSpec& spec, int64_t width) {
  const HeadSizes sizes = ResolveHeads(spec, width);
  return sizes.num_kv_heads * sizes.v_dim;
}

void Resolve(int64_t width, ProjectionSpec* spec) {
  const HeadSizes heads = ResolveHeads(*spec, width);
  spec->set_num_kv_heads(static_cast<int32_t>(heads.num_kv_heads));
  spec->set_qk_head_dim(static_cast<int32_t>(heads.qk_dim));
  spec->set_v_head_dim(static_cast<int32_t>(heads.v_dim));
  spec->clear_value_gate_rank();
}

// x_v of a gated value residual without token shift.
std::vector<std::string> UnreadTensors(const ProjectionSpec& spec, int64_t width, const std::string& prefix) {
  if (spec.token_shift()) return {};
  const bool after_shift = spec.value_residual() == ProjectionSpec::RWKV_POST_TOKEN_SHIFT;
  const bool read = after_shift && ValueWidth(spec, width) == width;
  const bool made = after_shift || spec.value_residual() == ProjectionSpec::RWKV;
  if (!made || read) return {};
  return {prefix + "x_v"};
}

void AdoptSizes(FindShape find, ProjectionSpec* spec) {
  if (const int32_t rank = RankOf(find("v_gate1.weight")); rank > 0) spec->set_value_gate_rank(rank);
}

}  // namespace projections_internal
}  // namespace kvm
