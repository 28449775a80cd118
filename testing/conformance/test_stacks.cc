#include "testing/conformance/test_stacks.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

constexpr char kBackbone[] = "vocab_size: 50 width: 32 mlp_expansion: 2 mlp_token_shift: true rotary_table: FLOAT32 ";
constexpr char kHeads[] = "projections { num_heads: 2 rotary_dim: 8 token_shift: true } ";
constexpr char kPowerLaw[] = "budget { growth: POWER_LAW factor: 2 min_rows: 8 max_chunks: 10000 } ";
constexpr int64_t kTokens = 6 * kTestChunk + 3;

TestStack Parsed(const std::string& name, const std::string& text, int64_t num_tokens = kTokens, uint64_t seed = 1) {
  const absl::StatusOr<StackSpec> spec = ParseStackSpec(text, name);
  CHECK(spec.ok()) << spec.status();
  return {name, *spec, num_tokens, seed};
}

// Two layers of one KVM mixer.
TestStack Kvm(const std::string& name, const std::string& mixer, uint64_t seed = 1) {
  return Parsed(name,
                absl::StrCat(kBackbone, "mixers { name: \"kvm\" kvm { chunk_len: ", kTestChunk, " ", mixer,
                             "} } layers: [\"kvm\", \"kvm\"]"),
                kTokens, seed);
}

// The same, with options that the reference does not know.
TestStack BeyondReference(const std::string& name, const std::string& mixer) {
  TestStack stack = Kvm(name, mixer);
  stack.has_reference = false;
  return stack;
}

// Two layers of one mixer of any kind.
TestStack Plain(const std::string& name, const std::string& mixer, int64_t num_tokens = kTokens, uint64_t seed = 1) {
  return Parsed(name, absl::StrCat(kBackbone, "mixers { name: \"m\" ", mixer, "} layers: [\"m\", \"m\"]"), num_tokens,
                seed);
}

std::vector<TestStack> KvmStacks() {
  const std::string heads = kHeads, power_law = kPowerLaw;
  const std::string projections = "projections { num_heads: 2 rotary_dim: 8 ";
  return {
      // State budgets.
      Kvm("kvm_fixed", heads + "budget { min_rows: 8 }"),
      Kvm("kvm_fixed_larger_than_first_chunk", heads + "budget { min_rows: 21 max_chunks: 10 }"),
      Kvm("kvm_fixed_without_minimum", heads),
      Kvm("kvm_power_law", heads + power_law),
      Kvm("kvm_saturation", heads + "budget { growth: SATURATION limit: 24 min_rows: 1 max_chunks: 10000 }"),
      Kvm("kvm_saturation_rounded_down",
          heads + "budget { growth: SATURATION limit: 40 round_down: 5 max_chunks: 10000 }"),
      Kvm("kvm_power_law_minimum_rules", heads + "budget { growth: POWER_LAW factor: 0.5 min_rows: 13 max_chunks: 9 }"),
      Kvm("kvm_power_law_no_minimum", heads + "budget { growth: POWER_LAW factor: 1.5 max_chunks: 10000 }"),
      Kvm("kvm_all_tokens_become_rows", heads + "budget { growth: POWER_LAW factor: 99 exponent: 1 max_chunks: 999 }"),
      Kvm("kvm_capped_at_one_chunk", heads + "budget { growth: POWER_LAW factor: 9 max_chunks: 1 }"),
      Kvm("kvm_capped_at_three_chunks", heads + "budget { growth: POWER_LAW factor: 9 max_chunks: 3 }"),
      // From 8 rows straight to a target of 24: a chunk gives only 8 of them.
      Kvm("kvm_target_jumps_by_two_chunks",
          heads + "window_chunks: 1 budget { growth: POWER_LAW exponent: 1 round_down: 24 max_chunks: 99 }"),

      // Rows, gates, reading.
      Kvm("kvm_no_sinks", heads + "num_sinks: 0 " + power_law),
      Kvm("kvm_two_sinks", heads + "num_sinks: 2 " + power_law),
      Kvm("kvm_five_sinks_fixed", heads + "num_sinks: 5 budget { min_rows: 8 }"),
      // The first update must append the row that merges go to.
      Kvm("kvm_whole_first_chunk_sinks", heads + "num_sinks: 8 " + power_law),
      Kvm("kvm_all_but_one_row_sinks", heads + "num_sinks: 7 budget { min_rows: 8 }"),
      Kvm("kvm_gated_appends", heads + "gate_appended_rows: true " + power_law),
      Kvm("kvm_gated_initial_rows", heads + "gate_initial_rows: true gate_appended_rows: true " + power_law),
      Kvm("kvm_no_gate", heads + "gate_keys: false gate_values: false gate_appended_rows: true " + power_law),
      Kvm("kvm_key_gate_only", heads + "gate_values: false gate_appended_rows: true " + power_law),
      Kvm("kvm_value_gate_only", heads + "gate_keys: false gate_appended_rows: true " + power_law),
      Kvm("kvm_no_temperatures", heads + "head_temperatures: false " + power_law),
      Kvm("kvm_means_fixed", heads + "use_radius: false budget { min_rows: 8 }"),
      Kvm("kvm_means_growing", heads + "use_radius: false gate_appended_rows: true " + power_law),
      Kvm("kvm_window_of_one_chunk", heads + "window_chunks: 1 " + power_law),
      Kvm("kvm_window_of_three_chunks", heads + "window_chunks: 3 " + power_law),

      // Projections.
      Kvm("kvm_grouped_heads",
          "projections { num_heads: 4 num_kv_heads: 2 rotary_dim: 4 token_shift: true } " + power_law),
      Kvm("kvm_odd_head_sizes",
          "projections { num_heads: 3 num_kv_heads: 1 qk_head_dim: 10 v_head_dim: 7 rotary_dim: 6 } " + power_law),
      Kvm("kvm_no_rotary", "projections { num_heads: 2 rotary_dim: 0 token_shift: true } " + power_law),
      Kvm("kvm_one_rotary_pair", "projections { num_heads: 2 rotary_dim: 2 token_shift: true } " + power_law),
      Kvm("kvm_no_token_shift", projections + "} " + power_law),
      Kvm("kvm_no_value_residual", projections + "token_shift: true value_residual: NONE } " + power_law),
      Kvm("kvm_linear_residual", projections + "token_shift: true value_residual: LINEAR } " + power_law),
      Kvm("kvm_residual_after_shift",
          projections + "token_shift: true value_residual: RWKV_POST_TOKEN_SHIFT } " + power_law),
      Kvm("kvm_residual_after_no_shift", projections + "value_residual: RWKV_POST_TOKEN_SHIFT } " + power_law),
      Kvm("kvm_residual_after_shift_grouped",
          "projections { num_heads: 4 num_kv_heads: 2 rotary_dim: 4 token_shift: true "
          "value_residual: RWKV_POST_TOKEN_SHIFT } " +
              power_law,
          /*seed=*/2),
      Kvm("kvm_nothing_extra", projections + "value_residual: NONE } num_sinks: 0 gate_keys: false gate_values: false "
                                             "head_temperatures: false budget { min_rows: 8 }"),
  };
}

// What KVM can do beyond the paper.
std::vector<TestStack> KvmOptionStacks() {
  const std::string heads = kHeads, power_law = kPowerLaw;
  const std::string head_budgets =
      "head_budgets { min_rows: 8 } head_budgets { growth: POWER_LAW factor: 3 max_chunks: 10000 } ";
  return {
      BeyondReference("kvm_append_below",
                      heads + "budget { growth: POWER_LAW factor: 4 max_chunks: 10000 append_below: 4 }"),
      BeyondReference("kvm_second_merge_and_decay", heads + "second_merge: 0.5 merge_decay: 0.75 " + power_law),
      BeyondReference("kvm_separate_rotary", heads + "separate_rotary: true " + power_law),
      BeyondReference("kvm_head_budgets", heads + head_budgets),
      BeyondReference("kvm_all_options", heads + head_budgets +
                                             "second_merge: 1 merge_decay: 0 separate_rotary: true " +
                                             "num_sinks: 3 gate_appended_rows: true"),
  };
}

// One mixer of each kind for mixed stacks.
std::string AllMixers() {
  return absl::StrCat("mixers { name: \"kvm\" kvm { chunk_len: ", kTestChunk, " ", kHeads, kPowerLaw, "} } ",
                      "mixers { name: \"swa\" attention { window: 5 ", kHeads, "} } ",
                      "mixers { name: \"rwkv7\" rwkv7 { num_heads: 2 } } ",
                      "mixers { name: \"window\" block_window { chunk_len: ", kTestChunk, " ", kHeads, "} } ",
                      "mixers { name: \"ovq\" ovq { chunk_len: 5 max_centroids: 20 ", kHeads, "} } ",
                      "mixers { name: \"gdn\" gated_delta_net { num_heads: 2 v_head_dim: 16 } } ",
                      "mixers { name: \"kda\" kimi_delta { num_heads: 2 } } ");
}

std::vector<TestStack> MixedStacks() {
  const std::string mixers = AllMixers();
  const auto anchored_kvm = [](const std::string& anchor) {
    return absl::StrCat("mixers { name: \"anchored\" value_anchor: \"", anchor, "\" kvm { chunk_len: ", kTestChunk, " ",
                        kHeads, kPowerLaw, "} } ");
  };
  const std::string on_rwkv7 =
      absl::StrCat("mixers { name: \"late\" value_anchor: \"rwkv7\" attention { ", kHeads, "} } ");
  const std::string on_window = absl::StrCat("mixers { name: \"anchored\" value_anchor: \"window\" ovq { ", kHeads,
                                             "chunk_len: 5 max_centroids: 20 } } ");
  const std::string on_kda = "mixers { name: \"late\" value_anchor: \"kda\" rwkv7 { num_heads: 2 } } ";
  return {
      Parsed("hybrid", kBackbone + mixers + "layers: [\"rwkv7\", \"swa\", \"rwkv7\", \"kvm\"]"),
      Parsed("hybrid_extras", kBackbone + mixers +
                                  "layers: [\"swa\", \"rwkv7\", \"kvm\", \"rwkv7\"] block_lambdas: true "
                                  "skip_connections: true residual_scale: 0.5 logit_softcap: 3"),
      Parsed("hybrid_tied_head_plain_mlp",
             "vocab_size: 50 width: 32 mlp_expansion: 3.3 tied_head: true " + mixers + "layers: [\"kvm\", \"rwkv7\"]"),
      Parsed("shared_value_anchor",
             kBackbone + mixers + anchored_kvm("swa") + "layers: [\"anchored\", \"swa\", \"anchored\"]"),
      Parsed("value_anchor_in_a_later_rwkv7", kBackbone + mixers + on_rwkv7 + "layers: [\"late\", \"kvm\", \"rwkv7\"]"),
      Parsed("rwkv7_not_first", kBackbone + mixers + "layers: [\"kvm\", \"rwkv7\", \"rwkv7\"]"),
      Parsed("window_and_dictionary_hybrid", kBackbone + mixers + on_window +
                                                 "layers: [\"rwkv7\", \"anchored\", \"window\", \"anchored\"] "
                                                 "block_lambdas: true skip_connections: true"),
      Parsed("delta_net_hybrid", kBackbone + mixers + anchored_kvm("gdn") + on_kda +
                                     "layers: [\"gdn\", \"kda\", \"anchored\", \"late\", \"gdn\", \"kda\"] "
                                     "block_lambdas: true skip_connections: true"),
      Parsed("every_mixer",
             kBackbone + mixers + "layers: [\"rwkv7\", \"window\", \"gdn\", \"ovq\", \"kda\", \"swa\", \"kvm\"]"),
      Parsed("bfloat16_rotary", "vocab_size: 50 width: 32 mlp_expansion: 2 " + mixers + "layers: [\"kvm\", \"swa\"]"),
  };
}

std::vector<TestStack> OtherStacks() {
  const std::string heads = kHeads;
  return {
      Plain("attention", "attention { " + heads + "} "),
      Plain("attention_all_channels_rotary",
            "attention { projections { num_heads: 4 num_kv_heads: 2 rotary_dim: 8 rotary_theta: 500 } } "),
      Plain("attention_linear_residual",
            "attention { projections { num_heads: 2 rotary_dim: 0 value_residual: LINEAR } } "),
      Plain("attention_past_a_block", "attention { " + heads + "} ", 530),
      Plain("sliding_window", "attention { window: 5 " + heads + "} "),
      Plain("sliding_window_of_one", "attention { window: 1 " + heads + "} "),
      Plain("sliding_window_longer_than_a_block", "attention { window: 300 " + heads + "} ", 600),
      Plain("rwkv7", "rwkv7 { num_heads: 2 } "),
      Plain("rwkv7_no_token_shift", "rwkv7 { num_heads: 4 token_shift: false } "),
      Plain("rwkv7_own_ranks",
            "rwkv7 { num_heads: 1 decay_rank: 3 in_context_rate_rank: 5 value_rank: 2 gate_rank: 7 } "),
  };
}

std::vector<TestStack> BlockWindowStacks() {
  const std::string heads = kHeads;
  return {
      Plain("block_window", "block_window { " + heads + "chunk_len: 8 } "),
      Plain("block_window_of_one_chunk", "block_window { " + heads + "chunk_len: 8 window_chunks: 1 num_sinks: 3 } "),
      Plain("block_window_of_three_chunks",
            "block_window { " + heads + "chunk_len: 8 window_chunks: 3 num_sinks: 0 } "),
      Plain("block_window_of_single_tokens",
            "block_window { " + heads + "chunk_len: 1 window_chunks: 3 num_sinks: 2 } "),
      Plain("block_window_with_many_sinks", "block_window { " + heads + "chunk_len: 8 num_sinks: 20 } "),
      Plain("block_window_with_only_sinks",
            "block_window { " + heads + "chunk_len: 8 window_chunks: 1 num_sinks: 99 } "),
      Plain("block_window_grouped_heads",
            "block_window { projections { num_heads: 6 num_kv_heads: 2 qk_head_dim: 10 v_head_dim: 7 rotary_dim: 6 "
            "value_residual: RWKV_POST_TOKEN_SHIFT } chunk_len: 5 } "),
  };
}

std::vector<TestStack> OvqStacks() {
  const std::string heads = kHeads;
  std::vector<TestStack> stacks = {
      Plain("ovq_of_single_tokens", "ovq { " + heads + "chunk_len: 1 max_centroids: 9 } "),
      Plain("ovq_of_one_centroid", "ovq { " + heads + "chunk_len: 4 max_centroids: 1 } "),
      Plain("ovq_smaller_than_a_chunk", "ovq { " + heads + "chunk_len: 8 max_centroids: 5 grow_linearly: true } "),
      Plain("ovq_linear_residual",
            "ovq { projections { num_heads: 4 value_residual: LINEAR } chunk_len: 7 max_centroids: 40 } "),
  };
  for (int flags = 0; flags < 16; ++flags) {
    const auto flag = [flags](int i) { return (flags >> i & 1) != 0 ? "true" : "false"; };
    stacks.push_back(Plain(absl::StrCat("ovq_flags_", flags),
                           absl::StrCat("ovq { ", heads, "chunk_len: 8 max_centroids: 20 grow_linearly: ", flag(0),
                                        " counts_for_rate_only: ", flag(1), " delta_rule: ", flag(2),
                                        " normalize_centroids: ", flag(3), " } "),
                           kTokens, /*seed=*/2));
  }
  return stacks;
}

std::vector<TestStack> DeltaNetStacks() {
  return {
      Plain("gated_delta_net", "gated_delta_net { num_heads: 2 } "),
      Plain("gated_delta_net_shared_heads",
            "gated_delta_net { num_heads: 2 num_value_heads: 6 qk_head_dim: 5 v_head_dim: 7 "
            "allow_negative_eigenvalues: true convolution { size: 3 bias: true } } "),
      Plain("gated_delta_net_without_gate", "gated_delta_net { num_heads: 4 output_gate: false norm_epsilon: 0.01 } "),
      Plain("gated_delta_net_without_convolution", "gated_delta_net { num_heads: 2 convolution { enabled: false } } "),
      Plain("gated_delta_net_long_convolution", "gated_delta_net { num_heads: 1 convolution { size: 16 } } "),
      Plain("kimi_delta", "kimi_delta { num_heads: 2 } "),
      Plain("kimi_delta_shared_heads",
            "kimi_delta { num_heads: 3 num_value_heads: 6 qk_head_dim: 5 v_head_dim: 7 "
            "allow_negative_eigenvalues: true convolution { size: 2 bias: true } } "),
      Plain("kimi_delta_bounded_decay", "kimi_delta { num_heads: 2 decay_lower_bound: -0.5 convolution { size: 1 } } "),
      Plain("kimi_delta_single_channels", "kimi_delta { num_heads: 5 qk_head_dim: 1 v_head_dim: 1 } "),
  };
}

bool HasRecurrence(const TestStack& stack) {
  const auto& layers = stack.spec.layers();
  return std::any_of(layers.begin(), layers.end(), [&](const std::string& layer) {
    const auto& mixers = stack.spec.mixers();
    const auto mixer =
        std::find_if(mixers.begin(), mixers.end(), [&](const MixerSpec& m) { return m.name() == layer; });
    return BuiltinMixerKinds().Of(*mixer).is_recurrence;
  });
}

}  // namespace

void PrintTo(const TestStack& stack, std::ostream* out) { *out << stack.name; }

std::vector<TestStack> TestStacks() {
  std::vector<TestStack> all;
  for (const auto& some : {KvmStacks(), KvmOptionStacks(), OtherStacks(), BlockWindowStacks(), OvqStacks(),
                           DeltaNetStacks(), MixedStacks()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

std::vector<TestStack> ReferenceStacks() {
  std::vector<TestStack> stacks = TestStacks();
  stacks.erase(std::remove_if(stacks.begin(), stacks.end(), [](const TestStack& s) { return !s.has_reference; }),
               stacks.end());
  return stacks;
}

std::vector<TestStack> RecurrentStacks() {
  std::vector<TestStack> stacks = TestStacks();
  stacks.erase(std::remove_if(stacks.begin(), stacks.end(), [](const TestStack& s) { return !HasRecurrence(s); }),
               stacks.end());
  return stacks;
}

std::vector<int32_t> TestTokens(const StackSpec& spec, int64_t count, uint64_t seed) {
  std::vector<int32_t> tokens(count);
  uint64_t state = seed * 7919 + 17;
  for (int32_t& token : tokens) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    token = static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(spec.vocab_size()));
  }
  return tokens;
}

}  // namespace kvm
