#include "kvm/model/stack_problems.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/model/delta_net_spec.h"
#include "kvm/model/stack_spec.h"

namespace kvm {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int kMaxLayers = 4096;
constexpr double kMaxParameters = 1099511627776.0;  // 2^40
// With factors below this, budgets of contexts up to 2^40 tokens fit int64.
constexpr double kMaxFactor = 1e6;

// Checks single fields and remembers what was wrong.
class Checker {
 public:
  void Add(const std::string& path, const std::string& got, const std::string& expected) {
    problems_.push_back({path, got, expected});
  }

  // Returns whether lowest <= value <= highest.
  bool Whole(const std::string& path, int64_t value, int64_t lowest, int64_t highest = kMaxSize) {
    if (value >= lowest && value <= highest) return true;
    Add(path, absl::StrCat(value), absl::StrCat("a whole number from ", lowest, " to ", highest));
    return false;
  }

  bool Above(const std::string& path, double value, double bound, double highest) {
    if (value > bound && value <= highest) return true;
    Add(path, absl::StrCat(value), absl::StrCat("a number above ", bound, " and at most ", highest));
    return false;
  }

  bool Finite(const std::string& path, double value) {
    if (std::isfinite(value)) return true;
    Add(path, absl::StrCat(value), "a finite number");
    return false;
  }

  size_t count() const { return problems_.size(); }
  std::vector<StackProblem> Take() { return std::move(problems_); }

 private:
  std::vector<StackProblem> problems_;
};

std::string Quoted(const std::string& name) { return absl::StrCat("\"", name, "\""); }

// The names of a spec's mixers as a message lists them.
std::string KnownMixers(const StackSpec& spec) {
  std::vector<std::string> names;
  for (const MixerSpec& mixer : spec.mixers()) names.push_back(Quoted(mixer.name()));
  return names.empty() ? "the name of a mixer, of which there are none"
                       : absl::StrCat("the name of a mixer: ", absl::StrJoin(names, ", "));
}

// What a mixer does with the rotary fields of its projections.
enum class RotaryUse { kAnyChannels, kNotAllChannels, kNone };

void CheckRotary(const ProjectionSpec& spec, RotaryUse use, bool sizes_known, int64_t width, const std::string& path,
                 Checker* check) {
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
  check->Above(absl::StrCat(path, ".rotary_theta"), spec.rotary_theta(), 0, 1e30);
}

void CheckProjections(const ProjectionSpec& spec, int64_t width, RotaryUse rotary, const std::string& path,
                      Checker* check) {
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

void CheckBudget(const BudgetSpec& spec, const std::string& path, Checker* check) {
  if (spec.growth() == BudgetSpec::POWER_LAW) {
    check->Above(absl::StrCat(path, ".factor"), spec.factor(), 0, kMaxFactor);
    if (!(spec.exponent() >= 0 && spec.exponent() <= 1)) {
      check->Add(absl::StrCat(path, ".exponent"), absl::StrCat(spec.exponent()), "a number from 0 to 1");
    }
  }
  if (spec.growth() == BudgetSpec::SATURATION) {
    check->Above(absl::StrCat(path, ".limit"), spec.limit(), 0, 1e12);
  }
  check->Whole(absl::StrCat(path, ".round_down"), spec.round_down(), 1);
  check->Whole(absl::StrCat(path, ".min_rows"), spec.min_rows(), -1);
  check->Whole(absl::StrCat(path, ".max_chunks"), spec.max_chunks(), 1);
  if (std::isnan(spec.append_below())) {
    check->Add(absl::StrCat(path, ".append_below"), absl::StrCat(spec.append_below()), "a number, inf or -inf");
  }
}

// The budget of all heads, or one of each.
void CheckBudgets(const KvmSpec& spec, const std::string& path, Checker* check) {
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

void CheckMerges(const KvmSpec& spec, const std::string& path, Checker* check) {
  // A mean counts its tokens as whole ones.
  const std::string whole_tokens = ", as use_radius is false";
  const auto fraction = [&](const std::string& field, double value, double neutral) {
    if (!(value >= 0 && value <= 1)) {
      check->Add(absl::StrCat(path, field), absl::StrCat(value), "a number from 0 to 1");
    } else if (!spec.use_radius() && value != neutral) {
      check->Add(absl::StrCat(path, field), absl::StrCat(value), absl::StrCat(neutral, whole_tokens));
    }
  };
  fraction(".second_merge", spec.second_merge(), 0);
  fraction(".merge_decay", spec.merge_decay(), 1);
}

void CheckKvm(const KvmSpec& spec, int64_t width, const std::string& path, Checker* check) {
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

void CheckBlockWindow(const BlockWindowSpec& spec, int64_t width, const std::string& path, Checker* check) {
  CheckProjections(spec.projections(), width, RotaryUse::kAnyChannels, absl::StrCat(path, ".projections"), check);
  check->Whole(absl::StrCat(path, ".chunk_len"), spec.chunk_len(), 1);
  check->Whole(absl::StrCat(path, ".window_chunks"), spec.window_chunks(), 1);
  check->Whole(absl::StrCat(path, ".num_sinks"), spec.num_sinks(), 0);
}

void CheckOvq(const OvqSpec& spec, int64_t width, const std::string& path, Checker* check) {
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

void CheckRwkv7(const Rwkv7Spec& spec, int64_t width, const std::string& path, Checker* check) {
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
void CheckDeltaNet(const Spec& spec, int64_t width, const std::string& path, Checker* check) {
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

void CheckKimiDelta(const KimiDeltaSpec& spec, int64_t width, const std::string& path, Checker* check) {
  CheckDeltaNet(spec, width, path, check);
  const double bound = spec.decay_lower_bound();
  if (spec.has_decay_lower_bound() && !(bound <= -1e-30 && bound >= -1e30)) {
    check->Add(absl::StrCat(path, ".decay_lower_bound"), absl::StrCat(bound), "a number from -1e+30 to -1e-30");
  }
}

void CheckMixers(const StackSpec& spec, Checker* check) {
  std::set<std::string> names;
  for (int i = 0; i < spec.mixers_size(); ++i) {
    const MixerSpec& mixer = spec.mixers(i);
    const std::string path = absl::StrCat("mixers[", i, "]");
    if (mixer.name().empty()) {
      check->Add(absl::StrCat(path, ".name"), "nothing", "a name");
    } else if (!names.insert(mixer.name()).second) {
      check->Add(absl::StrCat(path, ".name"), Quoted(mixer.name()), "a name that no other mixer has");
    }
    switch (mixer.kind_case()) {
      case MixerSpec::kAttention:
        CheckProjections(mixer.attention().projections(), spec.width(), RotaryUse::kAnyChannels,
                         absl::StrCat(path, ".attention.projections"), check);
        if (mixer.attention().has_window()) {
          check->Whole(absl::StrCat(path, ".attention.window"), mixer.attention().window(), 1);
        }
        break;
      case MixerSpec::kKvm:
        CheckKvm(mixer.kvm(), spec.width(), absl::StrCat(path, ".kvm"), check);
        break;
      case MixerSpec::kRwkv7:
        CheckRwkv7(mixer.rwkv7(), spec.width(), absl::StrCat(path, ".rwkv7"), check);
        break;
      case MixerSpec::kBlockWindow:
        CheckBlockWindow(mixer.block_window(), spec.width(), absl::StrCat(path, ".block_window"), check);
        break;
      case MixerSpec::kOvq:
        CheckOvq(mixer.ovq(), spec.width(), absl::StrCat(path, ".ovq"), check);
        break;
      case MixerSpec::kGatedDeltaNet:
        CheckDeltaNet(mixer.gated_delta_net(), spec.width(), absl::StrCat(path, ".gated_delta_net"), check);
        break;
      case MixerSpec::kKimiDelta:
        CheckKimiDelta(mixer.kimi_delta(), spec.width(), absl::StrCat(path, ".kimi_delta"), check);
        break;
      case MixerSpec::KIND_NOT_SET:
        check->Add(path, "no kind", "one of attention, kvm, rwkv7, block_window, ovq, gated_delta_net, kimi_delta");
        break;
    }
  }
}

void CheckLayers(const StackSpec& spec, Checker* check) {
  if (spec.layers_size() < 1 || spec.layers_size() > kMaxLayers) {
    check->Add("layers", absl::StrCat(spec.layers_size(), " layers"), absl::StrCat("1 to ", kMaxLayers, " layers"));
    return;
  }
  for (int i = 0; i < spec.layers_size(); ++i) {
    if (MixerIndex(spec, i) < 0) {
      check->Add(absl::StrCat("layers[", i, "]"), Quoted(spec.layers(i)), KnownMixers(spec));
    }
  }
}

// Sound mixers and layers given: anchors that exist and whose values are as wide as those that they are mixed with.
void CheckAnchors(const StackSpec& spec, Checker* check) {
  const std::set<std::string> used(spec.layers().begin(), spec.layers().end());
  for (int i = 0; i < spec.mixers_size(); ++i) {
    const MixerSpec& mixer = spec.mixers(i);
    if (!mixer.has_value_anchor()) continue;
    const std::string path = absl::StrCat("mixers[", i, "].value_anchor");
    const MixerSpec* anchor = nullptr;
    for (const MixerSpec& other : spec.mixers()) {
      if (other.name() == mixer.value_anchor()) anchor = &other;
    }
    if (anchor == nullptr) {
      check->Add(path, Quoted(mixer.value_anchor()), KnownMixers(spec));
      continue;
    }
    if (used.count(mixer.name()) == 0 || !HasValueResidual(mixer)) continue;
    const int64_t wanted = ValueWidth(mixer, spec.width());
    const int64_t offered = ValueWidth(*anchor, spec.width());
    if (used.count(anchor->name()) == 0) {
      check->Add(path, Quoted(mixer.value_anchor()), "a mixer that a layer uses");
    } else if (offered != wanted) {
      check->Add(path, absl::StrCat(Quoted(mixer.value_anchor()), " with values of ", offered, " channels"),
                 absl::StrCat("a mixer whose values have ", wanted, " channels, as those of ", Quoted(mixer.name())));
    }
  }
}

// About as many parameters as the spec has: its matrices, in floating point so that nothing overflows.
double NumMatrixElements(const StackSpec& spec) {
  const double width = spec.width();
  double elements = 2.0 * spec.vocab_size() * width;
  for (int i = 0; i < spec.layers_size(); ++i) {
    const MixerSpec& mixer = spec.mixers(MixerIndex(spec, i));
    elements += 2.0 * width * static_cast<double>(MlpWidth(spec));
    if (mixer.has_rwkv7()) {
      const Rwkv7Ranks ranks = ResolveRanks(mixer.rwkv7(), spec.width());
      elements += width * (4.0 * width + 2.0 * (ranks.decay + ranks.in_context_rate + ranks.value + ranks.gate));
    } else if (IsDeltaNet(mixer)) {
      const DeltaNetSpec sizes = ResolveDeltaNet(mixer, spec.width());
      elements += width * (2.0 * sizes.qk_width() + 3.0 * sizes.value_width());
      if (mixer.has_kimi_delta()) {
        const double keys = static_cast<double>(sizes.num_value_heads * sizes.qk_dim);
        elements += static_cast<double>(sizes.v_dim) * (2.0 * width + keys + sizes.value_width());
      }
    } else {
      const ProjectionSpec& projections = Projections(mixer);
      const HeadSizes heads = ResolveHeads(projections, spec.width());
      elements += width * static_cast<double>((heads.num_heads + heads.num_kv_heads) * (heads.qk_dim + heads.v_dim));
      elements += static_cast<double>(ValueGateRank(projections, spec.width())) *
                  (width + static_cast<double>(heads.num_kv_heads * heads.v_dim));
    }
  }
  return elements;
}

}  // namespace

std::vector<StackProblem> FindStackProblems(const StackSpec& spec) {
  Checker check;
  check.Whole("vocab_size", spec.vocab_size(), 1);
  const bool width_known = check.Whole("width", spec.width(), 1);
  CheckMixers(spec, &check);
  CheckLayers(spec, &check);
  if (width_known && check.Above("mlp_expansion", spec.mlp_expansion(), 0, static_cast<double>(kMaxSize)) &&
      (MlpWidth(spec) < 32 || MlpWidth(spec) > kMaxSize)) {
    check.Add("mlp_expansion", absl::StrCat(spec.mlp_expansion()),
              absl::StrCat("a number that makes the MLP ", 32, " to ", kMaxSize, " wide; the stack's width is ",
                           spec.width()));
  }
  if (spec.skip_connections() && spec.layers_size() % 2 != 0) {
    check.Add("skip_connections", "true", absl::StrCat("an even number of layers, not ", spec.layers_size()));
  }
  check.Finite("residual_scale", spec.residual_scale());
  if (check.Finite("logit_softcap", spec.logit_softcap()) && spec.logit_softcap() < 0) {
    check.Add("logit_softcap", absl::StrCat(spec.logit_softcap()), "0 (off) or a positive number");
  }
  if (check.count() != 0) return check.Take();
  CheckAnchors(spec, &check);
  const double elements = NumMatrixElements(spec);
  if (elements > kMaxParameters) {
    check.Add("layers", absl::StrCat("a stack of ", elements, " parameters"),
              absl::StrCat("at most ", kMaxParameters, " parameters"));
  }
  return check.Take();
}

}  // namespace kvm
