#include "kvm/io/huggingface/backbone_config_keys.h"

#include <optional>

#include "kvm/io/huggingface/config_rope.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

constexpr ConfigKeyUse kRestates = ConfigKeyUse::kRestates;
constexpr ConfigKeyUse kFixed = ConfigKeyUse::kFixed;
constexpr ConfigKeyUse kNoEffect = ConfigKeyUse::kNoEffect;

constexpr char kOff[] = "[false, 0]";
constexpr char kOn[] = "[true, 1]";
constexpr char kNothing[] = "[]";
constexpr char kSquaredRelu[] = R"(["relu2", "squared_relu", "relu_squared"])";
constexpr char kEpsilon[] = "[1e-5]";

using Number = std::optional<double>;

// What other names stand for. Of valid specs, which have a mixer.

Number Width(const StackSpec& spec) { return spec.width(); }
Number Layers(const StackSpec& spec) { return spec.layers_size(); }
Number MlpChannels(const StackSpec& spec) { return static_cast<double>(MlpWidth(spec)); }
Number Softcap(const StackSpec& spec) { return spec.logit_softcap(); }

// Of the first mixer.
std::optional<HeadSizes> HeadsOf(const StackSpec& spec) {
  const MixerKind& kind = BuiltinMixerKinds().Of(spec.mixers(0));
  return kind.heads == nullptr ? std::nullopt : std::make_optional(kind.heads(spec.mixers(0), spec.width()));
}

Number Heads(const StackSpec& spec) {
  const std::optional<HeadSizes> heads = HeadsOf(spec);
  return heads.has_value() ? Number(static_cast<double>(heads->num_heads)) : std::nullopt;
}

Number HeadChannels(const StackSpec& spec) {
  const std::optional<HeadSizes> heads = HeadsOf(spec);
  return heads.has_value() ? Number(static_cast<double>(heads->qk_dim)) : std::nullopt;
}

Number RotaryTheta(const StackSpec& spec) {
  for (const MixerSpec& mixer : spec.mixers()) {
    if (HasProjections(mixer)) return Projections(mixer).rotary_theta();
  }
  return std::nullopt;
}

Number RotaryChannels(const StackSpec& spec) {
  for (const MixerSpec& mixer : spec.mixers()) {
    if (HasProjections(mixer)) return Projections(mixer).rotary_dim();
  }
  return std::nullopt;
}

Number SlidingWindow(const StackSpec& spec) {
  for (const MixerSpec& mixer : spec.mixers()) {
    if (mixer.has_attention() && mixer.attention().has_window()) return mixer.attention().window();
  }
  return std::nullopt;
}

constexpr ConfigKey kKeys[] = {
    // Read.
    {"alt_layer_every"},
    {"alt_share_v0"},
    {"alt_token_mixer"},
    {"ffn_expansion"},
    {"hidden_size"},
    {"logit_softcap"},
    {"model_type"},
    {"num_hidden_layers"},
    {"residual_scale"},
    {"tie_word_embeddings"},
    {"token_mixer"},
    {"use_block_lambdas"},
    {"use_skip_connections"},
    {"use_sliding_window"},  // whether sliding_window means anything
    {"use_tokenshift_ffn"},
    {"vocab_size"},
    // Other names for what is read.
    {"d_model", kRestates, {}, Width},
    {"final_logit_softcapping", kRestates, {}, Softcap},
    {"head_dim", kRestates, {}, HeadChannels},
    {"intermediate_size", kRestates, {}, MlpChannels},
    {"n_embd", kRestates, {}, Width},
    {"n_head", kRestates, {}, Heads},
    {"n_inner", kRestates, {}, MlpChannels},
    {"n_layer", kRestates, {}, Layers},
    {"num_heads", kRestates, {}, Heads},
    {"num_layers", kRestates, {}, Layers},
    {"partial_rotary_factor", kRestates, {}, PartialRotaryFactor},
    {"rope_base", kRestates, {}, RotaryTheta},
    {"rotary_base", kRestates, {}, RotaryTheta},
    {"rotary_dim", kRestates, {}, RotaryChannels},
    {"rotary_emb_base", kRestates, {}, RotaryTheta},
    {"rotary_pct", kRestates, {}, PartialRotaryFactor},
    {"sliding_window", kRestates, {}, SlidingWindow},
    // Arithmetic.
    {"activation_function", kFixed, kSquaredRelu},
    {"add_bias_linear", kFixed, kOff},
    {"add_cross_attention", kFixed, kOff},
    {"alibi", kFixed, kOff},
    {"attention_bias", kFixed, kOff},
    {"attention_chunk_size", kFixed, kNothing},
    {"attention_multiplier", kFixed, kNothing},
    {"attention_out_bias", kFixed, kOff},
    {"attn_logit_softcapping", kFixed, "[0]"},
    {"bias", kFixed, kOff},
    {"compression_config", kFixed, "[{}]"},
    {"embedding_multiplier", kFixed, "[1]"},
    {"hidden_act", kFixed, kSquaredRelu},
    {"hidden_activation", kFixed, kSquaredRelu},
    {"is_causal", kFixed, kOn},
    {"is_encoder_decoder", kFixed, kOff},
    {"layer_norm_eps", kFixed, kEpsilon},
    {"layer_norm_epsilon", kFixed, kEpsilon},
    {"layer_types", kFixed, kNothing},
    {"lm_head_bias", kFixed, kOff},
    {"logit_scale", kFixed, "[1]"},
    {"logits_scaling", kFixed, "[1]"},
    {"mlp_bias", kFixed, kOff},
    {"mlp_hidden_act", kFixed, kSquaredRelu},
    {"n_routed_experts", kFixed, "[0]"},
    {"norm_eps", kFixed, kEpsilon},
    {"norm_epsilon", kFixed, kEpsilon},
    {"num_experts", kFixed, "[0]"},
    {"num_local_experts", kFixed, "[0]"},
    {"parallel_attn", kFixed, kOff},
    {"parallel_residual", kFixed, kOff},
    {"position_embedding_type", kFixed, R"(["rope", "rotary"])"},
    {"pretraining_tp", kFixed, "[1]"},
    {"qk_layernorm", kFixed, kOn},
    {"qk_norm", kFixed, kOn},
    {"qkv_bias", kFixed, kOff},
    {"quantization", kFixed, "[{}]"},
    {"quantization_config", kFixed, "[{}]"},
    {"query_pre_attn_scalar", kFixed, kNothing},
    {"residual_multiplier", kFixed, "[1]"},
    {"rms_norm_eps", kFixed, kEpsilon},
    {"rope_interleave", kFixed, kOn},
    {"rope_interleaved", kFixed, kOn},
    {"scale_attn_by_inverse_layer_idx", kFixed, kOff},
    {"use_bias", kFixed, kOff},
    {"use_parallel_residual", kFixed, kOff},
    {"use_qk_norm", kFixed, kOn},
    {"use_qkv_bias", kFixed, kOff},
    // What libraries write for themselves, for training, and for generating.
    {"_attn_implementation*", kNoEffect},
    {"_commit_hash", kNoEffect},
    {"_name_or_path", kNoEffect},
    {"alt_token_mixer_class_path", kNoEffect},
    {"architectures", kNoEffect},
    {"attention_dropout", kNoEffect},
    {"attn_implementation", kNoEffect},
    {"attn_pdrop", kNoEffect},
    {"auto_map", kNoEffect},
    {"bad_words_ids", kNoEffect},
    {"begin_suppress_tokens", kNoEffect},
    {"bos_token_id", kNoEffect},
    {"chunk_size_feed_forward", kNoEffect},
    {"cross_attention_hidden_size", kNoEffect},
    {"decoder_start_token_id", kNoEffect},
    {"diversity_penalty", kNoEffect},
    {"do_sample", kNoEffect},
    {"dtype", kNoEffect},
    {"early_stopping", kNoEffect},
    {"embd_pdrop", kNoEffect},
    {"encoder_no_repeat_ngram_size", kNoEffect},
    {"eos_token_id"},
    {"exponential_decay_length_penalty", kNoEffect},
    {"finetuning_task", kNoEffect},
    {"forced_bos_token_id", kNoEffect},
    {"forced_eos_token_id", kNoEffect},
    {"fuse_*", kNoEffect},
    {"gradient_checkpointing", kNoEffect},
    {"hidden_dropout", kNoEffect},
    {"hidden_dropout_prob", kNoEffect},
    {"id2label", kNoEffect},
    {"initializer_range", kNoEffect},
    {"is_decoder", kNoEffect},
    {"label2id", kNoEffect},
    {"length_penalty", kNoEffect},
    {"max_length", kNoEffect},
    {"max_position_embeddings", kNoEffect},
    {"max_window_layers", kNoEffect},
    {"min_length", kNoEffect},
    {"model_class_path", kNoEffect},
    {"model_max_length", kNoEffect},
    {"mup_base_dim", kNoEffect},
    {"n_positions", kNoEffect},
    {"no_repeat_ngram_size", kNoEffect},
    {"num_beam_groups", kNoEffect},
    {"num_beams", kNoEffect},
    {"num_return_sequences", kNoEffect},
    {"output_*", kNoEffect},
    {"pad_token_id", kNoEffect},
    {"param_dtype", kNoEffect},
    {"prefix", kNoEffect},
    {"problem_type", kNoEffect},
    {"pruned_heads", kNoEffect},
    {"remove_invalid_values", kNoEffect},
    {"repetition_penalty", kNoEffect},
    {"resid_pdrop", kNoEffect},
    {"return_dict*", kNoEffect},
    {"sep_token_id", kNoEffect},
    {"suppress_tokens", kNoEffect},
    {"task_specific_params", kNoEffect},
    {"temperature", kNoEffect},
    {"tf_legacy_loss", kNoEffect},
    {"tie_encoder_decoder", kNoEffect},
    {"tie_worhidden_sizedings", kNoEffect},  // misspelt where they are made
    {"token_mixer_class_path", kNoEffect},
    {"tokenizer_class", kNoEffect},
    {"top_k", kNoEffect},
    {"top_p", kNoEffect},
    {"torch_dtype", kNoEffect},
    {"torchscript", kNoEffect},
    {"transformers_version", kNoEffect},
    {"typical_p", kNoEffect},
    {"unk_token_id", kNoEffect},
    {"use_bfloat16", kNoEffect},
    {"use_cache", kNoEffect},
    {"use_l2wrap", kNoEffect},
};

}  // namespace

absl::Span<const ConfigKey> BackboneConfigKeys() { return kKeys; }

}  // namespace kvm
