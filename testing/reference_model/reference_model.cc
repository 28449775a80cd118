#include "testing/reference_model/reference_model.h"

#include <algorithm>
#include <cmath>
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

bool UsesAnchor(const MixerSpec& mixer) {
  if (mixer.has_rwkv7()) return true;
  if (mixer.has_gated_delta_net() || mixer.has_kimi_delta()) return false;
  if (mixer.has_kvm()) return mixer.kvm().projections().value_residual() != ProjectionSpec::NONE;
  if (mixer.has_block_window()) return mixer.block_window().projections().value_residual() != ProjectionSpec::NONE;
  if (mixer.has_ovq()) return mixer.ovq().projections().value_residual() != ProjectionSpec::NONE;
  return mixer.attention().projections().value_residual() != ProjectionSpec::NONE;
}

// The value projection of a layer of this kind, applied to x0, as a value anchor.
Rows AnchorValues(const MixerSpec& spec, const Weights& weights, const Rows& x0) {
  if (spec.has_gated_delta_net() || spec.has_kimi_delta()) return Linear(x0, weights, "v_proj");
  if (!spec.has_rwkv7()) return Linear(x0, weights, "c_v");
  if (!spec.rwkv7().token_shift()) return Linear(x0, weights, "value");
  return Linear(ShiftMix(x0, weights.Vector("x_v"), BeforeFirst::kZero), weights, "value");
}

// v_first of a layer: the value projection of the first layer with the anchor mixer, applied to the stack's input.
Rows Anchor(const StackSpec& spec, const Weights& weights, const MixerSpec& mixer, const Rows& x0) {
  if (!UsesAnchor(mixer)) return {};
  const MixerSpec& anchor = MixerNamed(spec, mixer.has_value_anchor() ? mixer.value_anchor() : mixer.name());
  const auto first = std::find(spec.layers().begin(), spec.layers().end(), anchor.name());
  const Weights of_layer = LayerWeights(weights, static_cast<int>(first - spec.layers().begin()));
  return AnchorValues(anchor, of_layer.Under("attn."), LayerNorm(x0, of_layer, "ln_attn"));
}

Rows Mix(const StackSpec& spec, const MixerSpec& mixer, const Weights& weights, const Rows& x, const Rows& anchor,
         KvmTrace* trace) {
  if (mixer.has_attention()) return Attention(mixer.attention(), spec.rotary_table(), weights, x, anchor);
  if (mixer.has_kvm()) return Kvm(mixer.kvm(), spec.rotary_table(), weights, x, anchor, trace);
  if (mixer.has_block_window()) return BlockWindow(mixer.block_window(), spec.rotary_table(), weights, x, anchor);
  if (mixer.has_ovq()) return Ovq(mixer.ovq(), weights, x, anchor, trace);
  if (mixer.has_gated_delta_net()) return GatedDeltaNet(mixer.gated_delta_net(), weights, x);
  if (mixer.has_kimi_delta()) return KimiDelta(mixer.kimi_delta(), weights, x);
  return Rwkv7(mixer.rwkv7(), weights, x, anchor);
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
    AddScaled(Mix(spec, mixer, layer.Under("attn."), normed, anchor, &run.trace), spec.residual_scale(), &x);
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
