#include "kvm/model/stack_problems.h"

#include <cmath>
#include <cstdint>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

void CheckProjections(const ProjectionSpec& spec, int64_t width, bool is_kvm, const std::string& path, Checker* check) {
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

  const bool rotary_known = check->Whole(absl::StrCat(path, ".rotary_dim"), spec.rotary_dim(), 0);
  if (rotary_known && spec.rotary_dim() % 2 != 0) {
    check->Add(absl::StrCat(path, ".rotary_dim"), absl::StrCat(spec.rotary_dim()), "an even number");
  }
  if (sizes_known && width >= 1) {
    const HeadSizes heads = ResolveHeads(spec, width);
    check->Whole(absl::StrCat(path, ".qk_head_dim times num_heads"), heads.num_heads * heads.qk_dim, 1);
    check->Whole(absl::StrCat(path, ".v_head_dim times num_heads"), heads.num_heads * heads.v_dim, 1);
    if (rotary_known && spec.rotary_dim() > heads.qk_dim) {
      check->Add(absl::StrCat(path, ".rotary_dim"), absl::StrCat(spec.rotary_dim()),
                 absl::StrCat("at most the ", heads.qk_dim, " channels of a head"));
    } else if (rotary_known && is_kvm && spec.rotary_dim() == heads.qk_dim) {
      check->Add(absl::StrCat(path, ".rotary_dim"), absl::StrCat(spec.rotary_dim()),
                 absl::StrCat("less than the ", heads.qk_dim,
                              " channels of a head, as state keys hold only channels without rotary embedding"));
    }
  }
  // Frequencies are its powers of -1 to 0.
  if (!(spec.rotary_theta() >= 1e-6 && spec.rotary_theta() <= 1e30)) {
    check->Add(absl::StrCat(path, ".rotary_theta"), absl::StrCat(spec.rotary_theta()),
               "a number from 0.000001 to 1e30");
  }
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
}

void CheckKvm(const KvmSpec& spec, int64_t width, const std::string& path, Checker* check) {
  CheckProjections(spec.projections(), width, /*is_kvm=*/true, absl::StrCat(path, ".projections"), check);
  const size_t problems_before = check->count();
  check->Whole(absl::StrCat(path, ".chunk_len"), spec.chunk_len(), 1);
  check->Whole(absl::StrCat(path, ".window_chunks"), spec.window_chunks(), 1);
  check->Whole(absl::StrCat(path, ".num_sinks"), spec.num_sinks(), 0);
  if (check->count() == problems_before && spec.num_sinks() > spec.chunk_len()) {
    check->Add(absl::StrCat(path, ".num_sinks"), absl::StrCat(spec.num_sinks()),
               absl::StrCat("at most chunk_len (", spec.chunk_len(), ")"));
  }
  CheckBudget(spec.budget(), absl::StrCat(path, ".budget"), check);
  if (check->count() != problems_before || spec.num_sinks() != spec.chunk_len()) return;
  // The first chunk is all sinks, so the first update must append a row that merges can go to.
  const int64_t chunk = spec.chunk_len();
  const int64_t first_context = chunk + chunk * spec.window_chunks();
  if (TargetRows(ToSlotBudget(spec.budget()), first_context, 2 * chunk, chunk, chunk) == chunk) {
    check->Add(absl::StrCat(path, ".num_sinks"), absl::StrCat(spec.num_sinks()),
               absl::StrCat("less than chunk_len (", chunk,
                            "), or a budget that adds a row at the first update: no row could take a merge"));
  }
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
        CheckProjections(mixer.attention().projections(), spec.width(), /*is_kvm=*/false,
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
      case MixerSpec::KIND_NOT_SET:
        check->Add(path, "no kind", "one of attention, kvm, rwkv7");
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
  // Bounds in which float32 has room left for what is multiplied. Written so that NaN is refused.
  if (!(std::abs(spec.residual_scale()) <= 1e6)) {
    check.Add("residual_scale", absl::StrCat(spec.residual_scale()), "a number from -1000000 to 1000000");
  }
  if (!(spec.logit_softcap() == 0 || (spec.logit_softcap() >= 1e-6 && spec.logit_softcap() <= 1e6))) {
    check.Add("logit_softcap", absl::StrCat(spec.logit_softcap()), "0 (off) or a number from 0.000001 to 1000000");
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
