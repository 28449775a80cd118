#include "testing/reference_model/reference_model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

namespace kvm {
namespace reference {
namespace {

const MixerSpec& MixerNamed(const StackSpec& spec, const std::string& name) {
  return *std::find_if(spec.mixers().begin(), spec.mixers().end(),
                       [&](const MixerSpec& mixer) { return mixer.name() == name; });
}

Weights LayerWeights(const Weights& weights, int layer) {
  return weights.Under(absl::StrCat("transformer.h.", layer, "."));
}

// How the reference computes a kind of mixer.
struct ReferenceMixer {
  int kind = 0;  // MixerSpec's field
  Rows (*mix)(const StackSpec& spec, const MixerSpec& mixer, const Weights& weights, const Rows& x, const Rows& anchor,
              KvmTrace* trace) = nullptr;
  // The value projection, applied to x0, as a value anchor.
  Rows (*anchor_values)(const MixerSpec& mixer, const Weights& weights, const Rows& x0) = nullptr;
  // Of kinds that mix values with an anchor as their projections say; null for kinds that have none.
  const ProjectionSpec& (*projections)(const MixerSpec& mixer) = nullptr;
  // Values are mixed with an anchor whatever the spec says.
  bool always_uses_anchor = false;
};

Rows ProjectedValues(const MixerSpec&, const Weights& weights, const Rows& x0) { return Linear(x0, weights, "c_v"); }

Rows DeltaNetValues(const MixerSpec&, const Weights& weights, const Rows& x0) { return Linear(x0, weights, "v_proj"); }

Rows Rwkv7Values(const MixerSpec& mixer, const Weights& weights, const Rows& x0) {
  if (!mixer.rwkv7().token_shift()) return Linear(x0, weights, "value");
  return Linear(ShiftMix(x0, weights.Vector("x_v"), BeforeFirst::kZero), weights, "value");
}

constexpr ReferenceMixer kMixers[] = {
    {MixerSpec::kAttentionFieldNumber,
     [](const StackSpec& spec, const MixerSpec& mixer, const Weights& weights, const Rows& x, const Rows& anchor,
        KvmTrace*) { return Attention(mixer.attention(), spec.rotary_table(), weights, x, anchor); },
     ProjectedValues, [](const MixerSpec& mixer) -> const ProjectionSpec& { return mixer.attention().projections(); }},
    {MixerSpec::kKvmFieldNumber,
     [](const StackSpec& spec, const MixerSpec& mixer, const Weights& weights, const Rows& x, const Rows& anchor,
        KvmTrace* trace) { return Kvm(mixer.kvm(), spec.rotary_table(), weights, x, anchor, trace); },
     ProjectedValues, [](const MixerSpec& mixer) -> const ProjectionSpec& { return mixer.kvm().projections(); }},
    {MixerSpec::kBlockWindowFieldNumber,
     [](const StackSpec& spec, const MixerSpec& mixer, const Weights& weights, const Rows& x, const Rows& anchor,
        KvmTrace*) { return BlockWindow(mixer.block_window(), spec.rotary_table(), weights, x, anchor); },
     ProjectedValues,
     [](const MixerSpec& mixer) -> const ProjectionSpec& { return mixer.block_window().projections(); }},
    {MixerSpec::kOvqFieldNumber,
     [](const StackSpec&, const MixerSpec& mixer, const Weights& weights, const Rows& x, const Rows& anchor,
        KvmTrace* trace) { return Ovq(mixer.ovq(), weights, x, anchor, trace); },
     ProjectedValues, [](const MixerSpec& mixer) -> const ProjectionSpec& { return mixer.ovq().projections(); }},
    {MixerSpec::kRwkv7FieldNumber,
     [](const StackSpec&, const MixerSpec& mixer, const Weights& weights, const Rows& x, const Rows& anchor,
        KvmTrace*) { return Rwkv7(mixer.rwkv7(), weights, x, anchor); },
     Rwkv7Values, nullptr, /*always_uses_anchor=*/true},
    {MixerSpec::kGatedDeltaNetFieldNumber,
     [](const StackSpec&, const MixerSpec& mixer, const Weights& weights, const Rows& x, const Rows&, KvmTrace*) {
       return GatedDeltaNet(mixer.gated_delta_net(), weights, x);
     },
     DeltaNetValues},
    {MixerSpec::kKimiDeltaFieldNumber,
     [](const StackSpec&, const MixerSpec& mixer, const Weights& weights, const Rows& x, const Rows&, KvmTrace*) {
       return KimiDelta(mixer.kimi_delta(), weights, x);
     },
     DeltaNetValues},
};

const ReferenceMixer& ReferenceOf(const MixerSpec& mixer) {
  const int kind = static_cast<int>(mixer.kind_case());
  return *std::find_if(std::begin(kMixers), std::end(kMixers),
                       [kind](const ReferenceMixer& known) { return known.kind == kind; });
}

bool UsesAnchor(const MixerSpec& mixer) {
  const ReferenceMixer& reference = ReferenceOf(mixer);
  if (reference.projections == nullptr) return reference.always_uses_anchor;
  return reference.projections(mixer).value_residual() != ProjectionSpec::NONE;
}

// v_first of a layer: the value projection of the first layer with the anchor mixer, applied to the stack's input.
Rows Anchor(const StackSpec& spec, const Weights& weights, const MixerSpec& mixer, const Rows& x0) {
  if (!UsesAnchor(mixer)) return {};
  const MixerSpec& anchor = MixerNamed(spec, mixer.has_value_anchor() ? mixer.value_anchor() : mixer.name());
  const auto first = std::find(spec.layers().begin(), spec.layers().end(), anchor.name());
  const Weights of_layer = LayerWeights(weights, static_cast<int>(first - spec.layers().begin()));
  return ReferenceOf(anchor).anchor_values(anchor, of_layer.Under("attn."), LayerNorm(x0, of_layer, "ln_attn"));
}

Rows Mlp(const StackSpec& spec, const Weights& weights, const Rows& x) {
  const Rows in = spec.mlp_token_shift() ? ShiftMix(x, weights.Vector("x_k"), BeforeFirst::kZero) : x;
  Rows inner = Linear(in, weights, "c_fc");
  for (Row& row : inner) {
    for (double& v : row) v = v > 0 ? v * v : 0;
  }
  return Linear(inner, weights, "c_proj");
}

void AddScaled(const Rows& y, double scale, Rows* x) {
  for (size_t t = 0; t < y.size(); ++t) {
    for (size_t i = 0; i < y[t].size(); ++i) (*x)[t][i] += scale * y[t][i];
  }
}

}  // namespace

ModelRun RunModel(const StackSpec& spec, const WeightSource& source, absl::Span<const int32_t> tokens) {
  const Weights weights = {source, ""};
  const Weights stack = weights.Under("transformer.");
  ModelRun run;
  const Rows embedding = stack.Matrix("wte");
  Rows x;
  for (const int32_t token : tokens) x.push_back(embedding[token]);
  const Rows x0 = x = LayerNorm(x, stack, "ln_emb");

  const int num_layers = spec.layers_size();
  for (int i = 0; i < num_layers; ++i) {
    const Weights layer = LayerWeights(weights, i);
    const MixerSpec& mixer = MixerNamed(spec, spec.layers(i));
    if (spec.skip_connections() && i >= num_layers / 2) {
      // Layer L/2 takes the output of layer L/2 − 1, the next that of the one before, ...
      const int from = num_layers - 1 - i;
      AddScaled(run.hidden[from], stack.Vector("skip_weights")[i - num_layers / 2], &x);
    }
    if (spec.block_lambdas()) {
      const Row lambdas = layer.Vector("lambdas");
      for (Row& row : x) {
        for (double& v : row) v *= lambdas[0];
      }
      AddScaled(x0, lambdas[1], &x);
    }
    const Rows normed = LayerNorm(x, layer, "ln_attn");
    const Rows anchor = Anchor(spec, weights, mixer, x0);
    const Rows mixed = ReferenceOf(mixer).mix(spec, mixer, layer.Under("attn."), normed, anchor, &run.trace);
    AddScaled(mixed, spec.residual_scale(), &x);
    AddScaled(Mlp(spec, layer.Under("mlp."), LayerNorm(x, layer, "ln_mlp")), spec.residual_scale(), &x);
    run.hidden.push_back(x);
  }

  run.logits = Linear(LayerNorm(x, stack, "ln_head"), weights, spec.tied_head() ? "transformer.wte" : "lm_head");
  if (spec.logit_softcap() > 0) {
    for (Row& row : run.logits) {
      for (double& v : row) v = spec.logit_softcap() * std::tanh(v / spec.logit_softcap());
    }
  }
  return run;
}

}  // namespace reference
}  // namespace kvm
