#include "kvm/model/stack/canonical_stack.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/model/stack/stack_spec.h"
#include "testing/conformance/test_stacks.h"

namespace kvm {
namespace {

std::string Canonical(const std::string& text) {
  const absl::StatusOr<StackSpec> spec = ParseStackSpec(text, "spec");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? FormatStackSpec(CanonicalStack(*spec)) : "";
}

constexpr char kHybrid[] = R"(
    vocab_size: 40 width: 32 mlp_token_shift: true
    mixers { name: "r" rwkv7 { num_heads: 2 } }
    mixers { name: "k" value_anchor: "r" kvm { projections { num_heads: 2 rotary_dim: 8 } } }
    layers: ["r", "k"])";

TEST(CanonicalStack, IsTheSameForEveryWayToSayIt) {
  EXPECT_EQ(Canonical(kHybrid), Canonical(R"(
    vocab_size: 40 width: 32 mlp_token_shift: true mlp_expansion: 4 block_lambdas: false residual_scale: 1
    rotary_table: BFLOAT16 tied_head: false
    mixers { name: "unused" rwkv7 { num_heads: 4 } }
    mixers {
      name: "main"
      value_anchor: "alt"
      kvm {
        projections { num_heads: 2 num_kv_heads: 2 qk_head_dim: 16 v_head_dim: 16 rotary_dim: 8 rotary_theta: 1e4
                      token_shift: false value_residual: RWKV value_gate_rank: 32 }
        chunk_len: 256
        budget { growth: FIXED factor: 7 exponent: 1 limit: 3 round_down: 5 }
        merge_decay: 1
      }
    }
    mixers { name: "alt" value_anchor: "alt" rwkv7 { num_heads: 2 token_shift: true decay_rank: 32 gate_rank: 32 } }
    layers: ["alt", "main"])"));
  EXPECT_EQ(
      Canonical("width: 32 mixers { name: \"g\" gated_delta_net { num_heads: 2 } } layers: \"g\""),
      Canonical("width: 32 mixers { name: \"x\" gated_delta_net { num_heads: 2 num_value_heads: 2 qk_head_dim: 16 "
                "v_head_dim: 32 convolution { enabled: true size: 4 } norm_epsilon: 1e-5 } } layers: \"x\""));
  // Without rotary embedding its tables do not matter.
  const std::string rwkv = "width: 32 mixers { name: \"r\" rwkv7 { num_heads: 2 } } layers: \"r\"";
  EXPECT_EQ(Canonical(rwkv), Canonical(rwkv + " rotary_table: FLOAT32"));
}

TEST(CanonicalStack, SaysOnlyWhatMatters) {
  EXPECT_EQ(Canonical(kHybrid), R"(vocab_size: 40
width: 32
mixers {
  name: "0"
  rwkv7 {
    num_heads: 2
  }
}
mixers {
  name: "1"
  value_anchor: "0"
  kvm {
    projections {
      num_heads: 2
      num_kv_heads: 2
      qk_head_dim: 16
      v_head_dim: 16
      rotary_dim: 8
    }
  }
}
layers: "0"
layers: "1"
mlp_token_shift: true
)");
}

TEST(CanonicalStack, TellsStacksApart) {
  std::map<std::string, std::string> seen;  // canonical form → the spec
  for (const TestStack& stack : TestStacks()) {
    const std::string canonical = FormatStackSpec(CanonicalStack(stack.spec));
    const std::string text = FormatStackSpec(stack.spec);
    EXPECT_EQ(seen.try_emplace(canonical, text).first->second, text) << stack.name;
    EXPECT_EQ(FormatStackSpec(CanonicalStack(CanonicalStack(stack.spec))), canonical) << stack.name;
    EXPECT_TRUE(ValidateStack(CanonicalStack(stack.spec)).ok()) << stack.name;
  }
  const std::string hybrid = kHybrid;
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = hybrid;
    return Canonical(text.replace(text.find(from), from.size(), to));
  };
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"rotary_dim: 8", "rotary_dim: 10"},
           {"rotary_dim: 8 }", "rotary_dim: 8 } num_sinks: 0"},
           {"rotary_dim: 8 }", "rotary_dim: 8 } budget { append_below: 0.5 }"},
           {"value_anchor: \"r\"", ""},
           {"mlp_token_shift: true", "rotary_table: FLOAT32 mlp_token_shift: true"},
           {"mlp_token_shift: true", ""},
           {"[\"r\", \"k\"]", "[\"r\", \"k\", \"k\"]"},
           {"[\"r\", \"k\"]", "[\"k\", \"r\"]"}}) {
    EXPECT_NE(changed(from, to), Canonical(hybrid)) << to;
  }
}

}  // namespace
}  // namespace kvm
