#include "kvm/model/stack/mixer_problems.h"

#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvm/model/stack/delta_net_spec.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

// With factors below this, budgets of contexts up to 2^40 tokens fit int64.
constexpr double kMaxFactor = 1e6;

// What a mixer does with the rotary fields of its projections.
enum class RotaryUse { kAnyChannels, kNotAllChannels, kNone };

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

void CheckBudget(const BudgetSpec& spec, const std::string& path, StackChecker* check) {
  if (spec.growth() == BudgetSpec::POWER_LAW) {
    check->Above(absl::StrCat(path, ".factor"), spec.factor(), 0, kMaxFactor);
    if (!(spec.exponent() >= 0 && spec.exponent() <= 1)) {
      check->Add(absl::StrCat(path, ".exponent"), NumberText(spec.exponent()), "a number from 0 to 1");
    }
  }
  if (spec.growth() == BudgetSpec::SATURATION) {
    check->Above(absl::StrCat(path, ".limit"), spec.limit(), 0, 1e12);
  }
  check->Whole(absl::StrCat(path, ".round_down"), spec.round_down(), 1);
  check->Whole(absl::StrCat(path, ".min_rows"), spec.min_rows(), -1);
  check->Whole(absl::StrCat(path, ".max_chunks"), spec.max_chunks(), 1);
  if (std::isnan(spec.append_below())) {
    check->Add(absl::StrCat(path, ".append_below"), NumberText(spec.append_below()), "a number, inf or -inf");
  }
}

// The budget of all heads, or one of each.
void CheckBudgets(const KvmSpec& spec, const std::string& path, StackChecker* check) {
  if (spec.head_budgets().empty()) {
    CheckBudget(spec.budget(), absl::StrCat(path, ".budget"), check);
    return;
  }
  const std::string heads_path = absl::StrCat(path, ".head_budgets");
  const ProjectionSpec& projections = spec.projections();
  const int32_t heads = projections.has_num_kv_heads() ? projections.num_kv_heads() : projections.num_heads();
  if (spec.head_budgets_size() != heads) {
    check->Add(heads_path, absl::StrCat(spec.head_budgets_size(), " budgets"),
               absl::StrCat("none, or one for each of the ", heads, " key/value heads"));
  }
  if (spec.has_budget()) {
    check->Add(heads_path, "budgets of heads beside one of all", "either budget or head_budgets");
  }
  for (int i = 0; i < spec.head_budgets_size(); ++i) {
    CheckBudget(spec.head_budgets(i), absl::StrCat(heads_path, "[", i, "]"), check);
  }
}

void CheckMerges(const KvmSpec& spec, const std::string& path, StackChecker* check) {
  // A mean counts its tokens as whole ones.
  const std::string whole_tokens = ", as use_radius is false";
  const auto fraction = [&](const std::string& field, double value, double neutral) {
    if (!(value >= 0 && value <= 1)) {
      check->Add(absl::StrCat(path, field), NumberText(value), "a number from 0 to 1");
    } else if (!spec.use_radius() && value != neutral) {
      check->Add(absl::StrCat(path, field), NumberText(value), absl::StrCat(neutral, whole_tokens));
    }
  };
  fraction(".second_merge", spec.second_merge(), 0);
  fraction(".merge_decay", spec.merge_decay(), 1);
}

void CheckKvm(const KvmSpec& spec, int64_t width, const std::string& path, StackChecker* check) {
  CheckProjections(spec.projections(), width, RotaryUse::kNotAllChannels, absl::StrCat(path, ".projections"), check);
  const size_t problems_before = check->count();
  check->Whole(absl::StrCat(path, ".chunk_len"), spec.chunk_len(), 1);
  check->Whole(absl::StrCat(path, ".window_chunks"), spec.window_chunks(), 1);
  check->Whole(absl::StrCat(path, ".num_sinks"), spec.num_sinks(), 0);
  if (check->count() == problems_before && spec.num_sinks() > spec.chunk_len()) {
    check->Add(absl::StrCat(path, ".num_sinks"), absl::StrCat(spec.num_sinks()),
               absl::StrCat("at most chunk_len (", spec.chunk_len(), ")"));
  }
  CheckBudgets(spec, path, check);
  CheckMerges(spec, path, check);
  if (check->count() != problems_before || spec.num_sinks() != spec.chunk_len()) return;
  // The first chunk is all sinks, so the first update must append a row that merges can go to.
  const int64_t chunk = spec.chunk_len();
  const int64_t first_context = chunk + chunk * spec.window_chunks();
  std::vector<BudgetSpec> budgets(spec.head_budgets().begin(), spec.head_budgets().end());
  if (budgets.empty()) budgets.push_back(spec.budget());
  for (const BudgetSpec& budget_spec : budgets) {
    const SlotBudget budget = ToSlotBudget(budget_spec);
    const bool always_appends = budget.append_below == std::numeric_limits<double>::infinity();
    if (always_appends && TargetRows(budget, first_context, 2 * chunk, chunk, chunk) > chunk) continue;
    check->Add(absl::StrCat(path, ".num_sinks"), absl::StrCat(spec.num_sinks()),
               absl::StrCat("less than chunk_len (", chunk,
                            "), or a budget that adds a row at the first update: no row could take a merge"));
    return;
  }
}

void CheckBlockWindow(const BlockWindowSpec& spec, int64_t width, const std::string& path, StackChecker* check) {
  CheckProjections(spec.projections(), width, RotaryUse::kAnyChannels, absl::StrCat(path, ".projections"), check);
  check->Whole(absl::StrCat(path, ".chunk_len"), spec.chunk_len(), 1);
  check->Whole(absl::StrCat(path, ".window_chunks"), spec.window_chunks(), 1);
  check->Whole(absl::StrCat(path, ".num_sinks"), spec.num_sinks(), 0);
}

void CheckOvq(const OvqSpec& spec, int64_t width, const std::string& path, StackChecker* check) {
  const std::string projections = absl::StrCat(path, ".projections");
  const size_t problems_before = check->count();
  CheckProjections(spec.projections(), width, RotaryUse::kNone, projections, check);
  if (check->count() == problems_before && width >= 1) {
    const HeadSizes heads = ResolveHeads(spec.projections(), width);
    if (heads.num_kv_heads != heads.num_heads) {
      check->Add(absl::StrCat(projections, ".num_kv_heads"), absl::StrCat(heads.num_kv_heads),
                 absl::StrCat("the number of heads (", heads.num_heads, "), as ovq has no key/value groups"));
    }
    if (heads.v_dim != heads.qk_dim) {
      check->Add(absl::StrCat(projections, ".v_head_dim"), absl::StrCat(heads.v_dim),
                 absl::StrCat("qk_head_dim (", heads.qk_dim, ")"));
    } else if (heads.num_heads * heads.v_dim != width) {
      check->Add(absl::StrCat(projections, ".v_head_dim times num_heads"), absl::StrCat(heads.num_heads * heads.v_dim),
                 absl::StrCat("the width (", width, ")"));
    }
  }
  check->Whole(absl::StrCat(path, ".chunk_len"), spec.chunk_len(), 1);
  check->Whole(absl::StrCat(path, ".max_centroids"), spec.max_centroids(), 1);
}

void CheckRwkv7(const Rwkv7Spec& spec, int64_t width, const std::string& path, StackChecker* check) {
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

// A gated_delta_net or kimi_delta, whose fields of the same names have the same ranges.
template <class Spec>
void CheckDeltaNet(const Spec& spec, int64_t width, const std::string& path, StackChecker* check) {
  constexpr int64_t kMaxConvolution = 16;
  const auto field = [&](const char* name) { return absl::StrCat(path, ".", name); };
  bool sizes_known = check->Whole(field("num_heads"), spec.num_heads(), 1);
  if (spec.has_num_value_heads()) {
    if (!check->Whole(field("num_value_heads"), spec.num_value_heads(), 1)) {
      sizes_known = false;
    } else if (sizes_known && spec.num_value_heads() % spec.num_heads() != 0) {
      check->Add(field("num_value_heads"), absl::StrCat(spec.num_value_heads()),
                 absl::StrCat("a multiple of the number of heads (", spec.num_heads(), ")"));
    }
  }
  if (spec.has_qk_head_dim()) {
    sizes_known = check->Whole(field("qk_head_dim"), spec.qk_head_dim(), 1) && sizes_known;
  } else if (sizes_known && width % spec.num_heads() != 0) {
    check->Add(field("num_heads"), absl::StrCat(spec.num_heads()),
               absl::StrCat("a divisor of the width (", width, ") unless qk_head_dim is given"));
    sizes_known = false;
  }
  if (spec.has_v_head_dim()) sizes_known = check->Whole(field("v_head_dim"), spec.v_head_dim(), 1) && sizes_known;
  if (sizes_known && width >= 1) {
    const DeltaNetSpec sizes = ResolveDeltaNet(spec, width);
    check->Whole(field("qk_head_dim times num_heads"), sizes.qk_width(), 1);
    check->Whole(field("qk_head_dim times num_value_heads"), sizes.num_value_heads * sizes.qk_dim, 1);
    check->Whole(field("v_head_dim times num_value_heads"), sizes.value_width(), 1);
  }
  if (spec.convolution().enabled()) {
    check->Whole(field("convolution.size"), spec.convolution().size(), 1, kMaxConvolution);
  }
  check->Above(field("norm_epsilon"), spec.norm_epsilon(), 1e-30, 1);
}

void CheckKimiDelta(const KimiDeltaSpec& spec, int64_t width, const std::string& path, StackChecker* check) {
  CheckDeltaNet(spec, width, path, check);
  const double bound = spec.decay_lower_bound();
  if (spec.has_decay_lower_bound() && !(bound <= -1e-30 && bound >= -1e30)) {
    check->Add(absl::StrCat(path, ".decay_lower_bound"), NumberText(bound), "a number from -1e+30 to -1e-30");
  }
}

}  // namespace

void CheckMixerKind(const MixerSpec& mixer, int64_t width, const std::string& path, StackChecker* check) {
  switch (mixer.kind_case()) {
    case MixerSpec::kAttention:
      CheckProjections(mixer.attention().projections(), width, RotaryUse::kAnyChannels,
                       absl::StrCat(path, ".attention.projections"), check);
      if (mixer.attention().has_window()) {
        check->Whole(absl::StrCat(path, ".attention.window"), mixer.attention().window(), 1);
      }
      break;
    case MixerSpec::kKvm:
      CheckKvm(mixer.kvm(), width, absl::StrCat(path, ".kvm"), check);
      break;
    case MixerSpec::kRwkv7:
      CheckRwkv7(mixer.rwkv7(), width, absl::StrCat(path, ".rwkv7"), check);
      break;
    case MixerSpec::kBlockWindow:
      CheckBlockWindow(mixer.block_window(), width, absl::StrCat(path, ".block_window"), check);
      break;
    case MixerSpec::kOvq:
      CheckOvq(mixer.ovq(), width, absl::StrCat(path, ".ovq"), check);
      break;
    case MixerSpec::kGatedDeltaNet:
      CheckDeltaNet(mixer.gated_delta_net(), width, absl::StrCat(path, ".gated_delta_net"), check);
      break;
    case MixerSpec::kKimiDelta:
      CheckKimiDelta(mixer.kimi_delta(), width, absl::StrCat(path, ".kimi_delta"), check);
      break;
    case MixerSpec::KIND_NOT_SET:
      check->Add(path, "no kind", "one of attention, kvm, rwkv7, block_window, ovq, gated_delta_net, kimi_delta");
      break;
  }
}

}  // namespace kvm
