// The two delta rule mixers: Gated DeltaNet and Kimi Delta Attention, with the tensors' names of the
// flash-linear-attention library.
//
// New ones begin so that the heads (GDN) or the key channels of each head (KDA) remember over very different lengths:
//   A_log        log of 1 to 16, evenly spaced over the value heads; 0 (A = 1) with a decay lower bound
//   dt_bias      inverse softplus of dt, from 0.001 to 0.1 in even ratios over the value heads (GDN) or over each
//   head's
//                key channels (KDA), so that a projection of 0 decays by exp(−A·dt); with a lower bound L
//                logit(min(dt/|L|, 1/2)), for a decay of exp(−dt)
//   conv1d       weights uniform in ±1/sqrt(size), biases 0
//   matrices     orthogonal: gain 1; b_proj, a_proj, f_proj.1 and KDA's g_proj.1, which turn gates, 0.1;
//                o_proj a block output
//   o_norm 1, g_proj.1.bias 0

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvm/base/format_count.h"
#include "kvm/model/stack/delta_net_spec.h"
#include "kvm/model/stack/kinds/kind_sizes.h"
#include "kvm/model/stack/kinds/kinds.h"

namespace kvm {
namespace {

DeltaNetSpec GatedSizes(const MixerSpec& mixer, int64_t width) {
  return ResolveDeltaNet(mixer.gated_delta_net(), width);
}
DeltaNetSpec KimiSizes(const MixerSpec& mixer, int64_t width) { return ResolveDeltaNet(mixer.kimi_delta(), width); }

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

void CheckKimiDelta(const MixerSpec& mixer, int64_t width, const std::string& path, StackChecker* check) {
  const KimiDeltaSpec& spec = mixer.kimi_delta();
  CheckDeltaNet(spec, width, path, check);
  const double bound = spec.decay_lower_bound();
  if (spec.has_decay_lower_bound() && !(bound <= -1e-30 && bound >= -1e30)) {
    check->Add(absl::StrCat(path, ".decay_lower_bound"), NumberText(bound), "a number from -1e+30 to -1e-30");
  }
}

void CheckGatedDeltaNet(const MixerSpec& mixer, int64_t width, const std::string& path, StackChecker* check) {
  CheckDeltaNet(mixer.gated_delta_net(), width, path, check);
}

constexpr double kGateGain = 0.1;

class Appender {
 public:
  Appender(std::string prefix, std::vector<Parameter>* parameters)
      : prefix_(std::move(prefix)), parameters_(parameters) {}

  void Add(const std::string& name, Shape shape, Initialization initialization, bool is_block_output = false) {
    parameters_->push_back({prefix_ + name, std::move(shape), std::move(initialization), is_block_output});
  }
  void Matrix(const std::string& name, int64_t outputs, int64_t inputs, double gain) {
    Add(name + ".weight", {outputs, inputs}, Initialization::Orthogonal(gain));
  }

 private:
  std::string prefix_;
  std::vector<Parameter>* parameters_;
};

// 0 to 1 over n entries; one half for a single one.
double Ladder(int64_t i, int64_t n) { return n == 1 ? 0.5 : static_cast<double>(i) / static_cast<double>(n - 1); }

// The log decay with which entry i of n begins, when A is 1: from 0.001 to 0.1.
double TimeStep(int64_t i, int64_t n) { return 1e-3 * std::pow(100.0, Ladder(i, n)); }

double InverseSoftplus(double x) { return x + std::log(-std::expm1(-x)); }

// log A of the value heads.
Initialization DecayRates(int64_t heads) {
  return Initialization::Values([heads](int64_t i) { return std::log(1 + 15 * Ladder(i, heads)); });
}

void AppendConvolution(const std::string& name, const DeltaNetSpec& spec, int64_t channels, Appender* append) {
  if (spec.conv_size == 0) return;
  const double bound = 1 / std::sqrt(static_cast<double>(spec.conv_size));
  append->Add(name + ".weight", {channels, 1, spec.conv_size}, Initialization::Uniform(bound));
  if (spec.conv_bias) append->Add(name + ".bias", {channels}, Initialization::Fill(0));
}

// What both mixers have.
void AppendCommon(const DeltaNetSpec& spec, int64_t width, Appender* append) {
  append->Matrix("q_proj", spec.qk_width(), width, 1);
  append->Matrix("k_proj", spec.qk_width(), width, 1);
  append->Matrix("v_proj", spec.value_width(), width, 1);
  AppendConvolution("q_conv1d", spec, spec.qk_width(), append);
  AppendConvolution("k_conv1d", spec, spec.qk_width(), append);
  AppendConvolution("v_conv1d", spec, spec.value_width(), append);
  append->Matrix("b_proj", spec.num_value_heads, width, kGateGain);
  append->Add("o_norm.weight", {spec.v_dim}, Initialization::Fill(1));
  append->Add("o_proj.weight", {width, spec.value_width()}, Initialization::Orthogonal(1), true);
}

void AppendGatedDeltaNetParameters(const MixerSpec& mixer, const LayerPlace& place, const std::string& prefix,
                                   std::vector<Parameter>* parameters) {
  const GatedDeltaNetSpec& spec = mixer.gated_delta_net();
  const DeltaNetSpec sizes = ResolveDeltaNet(spec, place.width);
  const int64_t heads = sizes.num_value_heads;
  Appender append(prefix, parameters);
  AppendCommon(sizes, place.width, &append);
  append.Matrix("a_proj", heads, place.width, kGateGain);
  append.Add("A_log", {heads}, DecayRates(heads));
  append.Add("dt_bias", {heads},
             Initialization::Values([heads](int64_t i) { return InverseSoftplus(TimeStep(i, heads)); }));
  if (spec.output_gate()) append.Matrix("g_proj", sizes.value_width(), place.width, 1);
}

void AppendKimiDeltaParameters(const MixerSpec& mixer, const LayerPlace& place, const std::string& prefix,
                               std::vector<Parameter>* parameters) {
  const KimiDeltaSpec& spec = mixer.kimi_delta();
  const DeltaNetSpec sizes = ResolveDeltaNet(spec, place.width);
  const int64_t heads = sizes.num_value_heads, keys = sizes.qk_dim;
  Appender append(prefix, parameters);
  AppendCommon(sizes, place.width, &append);
  append.Matrix("f_proj.0", sizes.v_dim, place.width, 1);
  append.Matrix("f_proj.1", heads * keys, sizes.v_dim, kGateGain);
  if (spec.has_decay_lower_bound()) {
    const double bound = -spec.decay_lower_bound();
    const auto bias = [keys, bound](int64_t i) {
      const double part = std::min(TimeStep(i % keys, keys) / bound, 0.5);
      return std::log(part / (1 - part));
    };
    append.Add("A_log", {heads}, Initialization::Fill(0));
    append.Add("dt_bias", {heads * keys}, Initialization::Values(bias));
  } else {
    const auto bias = [keys](int64_t i) { return InverseSoftplus(TimeStep(i % keys, keys)); };
    append.Add("A_log", {heads}, DecayRates(heads));
    append.Add("dt_bias", {heads * keys}, Initialization::Values(bias));
  }
  append.Matrix("g_proj.0", sizes.v_dim, place.width, 1);
  append.Matrix("g_proj.1", sizes.value_width(), sizes.v_dim, kGateGain);
  append.Add("g_proj.1.bias", {sizes.value_width()}, Initialization::Fill(0));
}

// Says outright the sizes that are absent. Spec: GatedDeltaNetSpec or KimiDeltaSpec.
template <class Spec>
void SayDeltaNetSizes(const DeltaNetSpec& sizes, Spec* spec) {
  spec->set_num_value_heads(static_cast<int32_t>(sizes.num_value_heads));
  spec->set_qk_head_dim(static_cast<int32_t>(sizes.qk_dim));
  spec->set_v_head_dim(static_cast<int32_t>(sizes.v_dim));
}

// The sizes that the published configurations have by default: keys of 3/4 and values of 3/2 of the width.
absl::Status FillGatedDeltaNet(const PatternSizes& sizes, MixerSpec* mixer) {
  GatedDeltaNetSpec* spec = mixer->mutable_gated_delta_net();
  spec->set_num_heads(static_cast<int32_t>(sizes.heads));
  spec->set_qk_head_dim(static_cast<int32_t>(std::max<int64_t>(1, sizes.width * 3 / (4 * sizes.heads))));
  spec->set_v_head_dim(static_cast<int32_t>(std::max<int64_t>(1, sizes.width * 3 / (2 * sizes.heads))));
  return absl::OkStatus();
}

absl::Status FillKimiDelta(const PatternSizes& sizes, MixerSpec* mixer) {
  mixer->mutable_kimi_delta()->set_num_heads(static_cast<int32_t>(sizes.heads));
  return absl::OkStatus();
}

std::string DescribeDeltaNet(const std::string& title, const DeltaNetSpec& spec) {
  std::string text = absl::StrCat(title, ", ", FormatCounted(spec.num_heads, "head"), " of ", spec.qk_dim);
  if (spec.v_dim != spec.qk_dim) absl::StrAppend(&text, "/", spec.v_dim);
  if (spec.num_value_heads != spec.num_heads)
    absl::StrAppend(&text, ", ", FormatCounted(spec.num_value_heads, "value head"));
  return absl::StrCat(text, spec.conv_size > 0 ? absl::StrCat(", convolution ", spec.conv_size) : "");
}

// Sets what follows from a DeltaNetSpec alone. As the anchor of other mixers serves v_proj.
template <DeltaNetSpec (*Sizes)(const MixerSpec& mixer, int64_t width)>
void SetDeltaNetFacts(MixerKind* kind) {
  kind->value_width = [](const MixerSpec& mixer, int64_t width) { return Sizes(mixer, width).value_width(); };
  // A matrix [K, V] per value head and the raw projections that the convolutions still need; always float32.
  kind->state_size = [](const MixerSpec& mixer, int64_t width, const StateQuery&) {
    const DeltaNetSpec spec = Sizes(mixer, width);
    const int64_t matrices = spec.num_value_heads * spec.qk_dim * spec.v_dim;
    const int64_t history = spec.history() * (2 * spec.qk_width() + spec.value_width());
    return StateSize{0, (matrices + history) * kFloatBytes};
  };
  kind->is_recurrence = true;
  // Per state element: 1 for the decay and 2 each for Sᵀk, the update and Sᵀq.
  kind->token_cost = [](const MixerSpec& mixer, int64_t width, DType, int64_t) {
    const DeltaNetSpec spec = Sizes(mixer, width);
    const double elements = SizeProduct(spec.num_value_heads, spec.qk_dim, spec.v_dim);
    return MixerCost{7 * elements, sizeof(float) * elements};
  };
  kind->heads = [](const MixerSpec& mixer, int64_t width) {
    const DeltaNetSpec spec = Sizes(mixer, width);
    return HeadSizes{spec.num_heads, spec.num_value_heads, spec.qk_dim, spec.v_dim};
  };
}

constexpr absl::string_view kKimiMeaningful[] = {"decay_lower_bound"};
constexpr MixerPattern kGatedPatterns[] = {{'G', "gated_delta_net", "Gated DeltaNet", FillGatedDeltaNet}};
constexpr MixerPattern kKimiPatterns[] = {{'D', "kimi_delta", "Kimi Delta Attention", FillKimiDelta}};

}  // namespace

const MixerKind& GatedDeltaNetKind() {
  static const MixerKind kind = [] {
    MixerKind made;
    made.name = "gated_delta_net";
    made.field_number = MixerSpec::kGatedDeltaNetFieldNumber;
    SetDeltaNetFacts<GatedSizes>(&made);
    made.check = CheckGatedDeltaNet;
    made.append_parameters = AppendGatedDeltaNetParameters;
    made.describe = [](const MixerSpec& mixer, int64_t width) {
      return DescribeDeltaNet("Gated DeltaNet", GatedSizes(mixer, width));
    };
    made.resolve = [](int64_t width, MixerSpec* mixer) {
      SayDeltaNetSizes(GatedSizes(*mixer, width), mixer->mutable_gated_delta_net());
    };
    made.patterns = kGatedPatterns;
    return made;
  }();
  return kind;
}

const MixerKind& KimiDeltaKind() {
  static const MixerKind kind = [] {
    MixerKind made;
    made.name = "kimi_delta";
    made.field_number = MixerSpec::kKimiDeltaFieldNumber;
    SetDeltaNetFacts<KimiSizes>(&made);
    made.check = CheckKimiDelta;
    made.append_parameters = AppendKimiDeltaParameters;
    made.describe = [](const MixerSpec& mixer, int64_t width) {
      return DescribeDeltaNet("Kimi Delta Attention", KimiSizes(mixer, width));
    };
    made.resolve = [](int64_t width, MixerSpec* mixer) {
      SayDeltaNetSizes(KimiSizes(*mixer, width), mixer->mutable_kimi_delta());
    };
    made.meaningful_fields = kKimiMeaningful;
    made.patterns = kKimiPatterns;
    return made;
  }();
  return kind;
}

}  // namespace kvm
