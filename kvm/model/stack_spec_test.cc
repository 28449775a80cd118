#include "kvm/model/stack_spec.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

// A hybrid with one mixer of each kind.
constexpr char kHybrid[] = R"(
  vocab_size: 64
  width: 32
  mixers { name: "rwkv7" rwkv7 { num_heads: 2 } }
  mixers {
    name: "kvm"
    kvm {
      projections { num_heads: 4 num_kv_heads: 2 rotary_dim: 4 token_shift: true }
      chunk_len: 8
      budget { growth: POWER_LAW factor: 2 max_chunks: 100 }
    }
  }
  mixers { name: "window" attention { projections { num_heads: 2 rotary_dim: 8 v_head_dim: 8 } window: 16 } }
  layers: ["rwkv7", "kvm", "window", "kvm"]
)";

StackSpec Hybrid() {
  absl::StatusOr<StackSpec> spec = ParseStackSpec(kHybrid, "hybrid");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

// The message of ValidateStack for the hybrid with a change.
template <typename Change>
std::string Refusal(Change change) {
  StackSpec spec = Hybrid();
  change(spec);
  return std::string(ValidateStack(spec).message());
}

TEST(ParseStackSpec, ReadsTheTextFormat) {
  const StackSpec spec = Hybrid();
  EXPECT_EQ(spec.layers_size(), 4);
  EXPECT_TRUE(spec.mixers(1).kvm().projections().token_shift());
  EXPECT_EQ(spec.mixers(1).kvm().window_chunks(), 2);
}

TEST(ParseStackSpec, NamesSourceLineAndColumn) {
  const absl::StatusOr<StackSpec> spec = ParseStackSpec("width: 32\nwdith: 3", "a/stack.textproto");
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(spec.status().message()), HasSubstr("a/stack.textproto:2:6: "));
  EXPECT_THAT(std::string(spec.status().message()), HasSubstr("wdith"));
}

TEST(ParseStackSpec, RefusesUnknownEnumValues) { EXPECT_FALSE(ParseStackSpec("rotary_table: FLOAT64", "x").ok()); }

TEST(ParseStackSpec, RefusesDeepNesting) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "mixers { kvm { projections { ";
  EXPECT_FALSE(ParseStackSpec(text, "x").ok());
}

TEST(ParseStackSpec, NamesTheSourceOfInvalidSpecs) {
  EXPECT_THAT(std::string(ParseStackSpec("width: 0", "here").status().message()), HasSubstr("here: width: got 0"));
}

TEST(FormatStackSpec, RoundTrips) {
  const StackSpec spec = Hybrid();
  const absl::StatusOr<StackSpec> again = ParseStackSpec(FormatStackSpec(spec), "again");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(FormatStackSpec(*again), FormatStackSpec(spec));
}

TEST(ValidateStack, ListsEveryProblem) {
  const std::string message = Refusal([](StackSpec& spec) {
    spec.set_vocab_size(0);
    spec.mutable_mixers(1)->mutable_kvm()->set_chunk_len(-3);
    spec.set_layers(2, "wnidow");
  });
  EXPECT_THAT(message, HasSubstr("vocab_size: got 0, expected a whole number from 1 to "));
  EXPECT_THAT(message, HasSubstr("; mixers[1].kvm.chunk_len: got -3, expected a whole number from 1 to "));
  EXPECT_THAT(message, HasSubstr("; layers[2]: got \"wnidow\", expected the name of a mixer: \"rwkv7\", \"kvm\", "));
}

TEST(ValidateStack, RefusesWithTheFieldsPath) {
  struct Case {
    std::string path;
    void (*change)(StackSpec&);
  };
  const std::vector<Case> cases = {
      {"width", [](StackSpec& s) { s.set_width(0); }},
      {"width", [](StackSpec& s) { s.set_width(1 << 25); }},
      {"layers", [](StackSpec& s) { s.clear_layers(); }},
      {"layers[0]", [](StackSpec& s) { s.clear_mixers(); }},
      {"layers",
       [](StackSpec& s) {
         for (int i = 0; i < 5000; ++i) s.add_layers("kvm");
       }},
      {"mixers[0].name", [](StackSpec& s) { s.mutable_mixers(0)->set_name(""); }},
      {"mixers[1].name", [](StackSpec& s) { s.mutable_mixers(1)->set_name("rwkv7"); }},
      {"mixers[2]", [](StackSpec& s) { s.mutable_mixers(2)->clear_kind(); }},
      {"mixers[1].value_anchor", [](StackSpec& s) { s.mutable_mixers(1)->set_value_anchor("rvkw7"); }},
      {"mixers[1].value_anchor", [](StackSpec& s) { s.mutable_mixers(1)->set_value_anchor("rwkv7"); }},
      {"mixers[1].value_anchor",
       [](StackSpec& s) {
         s.mutable_mixers(1)->set_value_anchor("window");
         s.set_layers(2, "kvm");
       }},
      {"mlp_expansion", [](StackSpec& s) { s.set_mlp_expansion(0.9); }},
      {"mlp_expansion", [](StackSpec& s) { s.set_mlp_expansion(0.0 / 0.0); }},
      {"mlp_expansion", [](StackSpec& s) { s.set_mlp_expansion(1e300); }},
      {"skip_connections",
       [](StackSpec& s) {
         s.set_skip_connections(true);
         s.add_layers("kvm");
       }},
      {"residual_scale", [](StackSpec& s) { s.set_residual_scale(1.0 / 0.0); }},
      {"residual_scale", [](StackSpec& s) { s.set_residual_scale(-1.1e6); }},
      {"residual_scale", [](StackSpec& s) { s.set_residual_scale(0.0 / 0.0); }},
      {"logit_softcap", [](StackSpec& s) { s.set_logit_softcap(-1); }},
      {"logit_softcap", [](StackSpec& s) { s.set_logit_softcap(1e-7); }},
      {"logit_softcap", [](StackSpec& s) { s.set_logit_softcap(1.1e6); }},
      {"logit_softcap", [](StackSpec& s) { s.set_logit_softcap(0.0 / 0.0); }},
      {"mixers[0].rwkv7.num_heads", [](StackSpec& s) { s.mutable_mixers(0)->mutable_rwkv7()->set_num_heads(3); }},
      {"mixers[0].rwkv7.num_heads", [](StackSpec& s) { s.mutable_mixers(0)->mutable_rwkv7()->clear_num_heads(); }},
      {"mixers[0].rwkv7.gate_rank", [](StackSpec& s) { s.mutable_mixers(0)->mutable_rwkv7()->set_gate_rank(0); }},
      {"mixers[2].attention.window", [](StackSpec& s) { s.mutable_mixers(2)->mutable_attention()->set_window(0); }},
  };
  for (const Case& c : cases) {
    const std::string message = Refusal(c.change);
    EXPECT_THAT(message, HasSubstr(c.path + ": got ")) << c.path;
  }
}

TEST(ValidateStack, RefusesBadKvmFields) {
  struct Case {
    std::string path;
    void (*change)(KvmSpec&);
  };
  const std::vector<Case> cases = {
      {"projections.num_heads", [](KvmSpec& k) { k.mutable_projections()->set_num_heads(0); }},
      {"projections.num_heads", [](KvmSpec& k) { k.mutable_projections()->set_num_heads(6); }},
      {"projections.num_kv_heads", [](KvmSpec& k) { k.mutable_projections()->set_num_kv_heads(3); }},
      {"projections.qk_head_dim", [](KvmSpec& k) { k.mutable_projections()->set_qk_head_dim(0); }},
      {"projections.v_head_dim", [](KvmSpec& k) { k.mutable_projections()->set_v_head_dim(-1); }},
      {"projections.rotary_dim", [](KvmSpec& k) { k.mutable_projections()->set_rotary_dim(3); }},
      {"projections.rotary_dim", [](KvmSpec& k) { k.mutable_projections()->set_rotary_dim(-2); }},
      {"projections.rotary_dim", [](KvmSpec& k) { k.mutable_projections()->set_rotary_dim(8); }},
      {"projections.rotary_dim", [](KvmSpec& k) { k.mutable_projections()->set_rotary_dim(10); }},
      {"projections.rotary_theta", [](KvmSpec& k) { k.mutable_projections()->set_rotary_theta(0); }},
      {"projections.rotary_theta", [](KvmSpec& k) { k.mutable_projections()->set_rotary_theta(1e-7); }},
      {"projections.rotary_theta", [](KvmSpec& k) { k.mutable_projections()->set_rotary_theta(0.0 / 0.0); }},
      {"projections.rotary_theta", [](KvmSpec& k) { k.mutable_projections()->set_rotary_theta(1.0 / 0.0); }},
      {"projections.value_gate_rank", [](KvmSpec& k) { k.mutable_projections()->set_value_gate_rank(0); }},
      {"window_chunks", [](KvmSpec& k) { k.set_window_chunks(0); }},
      {"num_sinks", [](KvmSpec& k) { k.set_num_sinks(-1); }},
      {"num_sinks", [](KvmSpec& k) { k.set_num_sinks(9); }},
      {"budget.factor", [](KvmSpec& k) { k.mutable_budget()->set_factor(0); }},
      {"budget.exponent", [](KvmSpec& k) { k.mutable_budget()->set_exponent(1.5); }},
      {"budget.exponent", [](KvmSpec& k) { k.mutable_budget()->set_exponent(0.0 / 0.0); }},
      {"budget.limit", [](KvmSpec& k) { k.mutable_budget()->set_growth(BudgetSpec::SATURATION); }},
      {"budget.round_down", [](KvmSpec& k) { k.mutable_budget()->set_round_down(0); }},
      {"budget.min_rows", [](KvmSpec& k) { k.mutable_budget()->set_min_rows(-2); }},
      {"budget.max_chunks", [](KvmSpec& k) { k.mutable_budget()->set_max_chunks(0); }},
  };
  for (const Case& c : cases) {
    StackSpec spec = Hybrid();
    c.change(*spec.mutable_mixers(1)->mutable_kvm());
    EXPECT_THAT(std::string(ValidateStack(spec).message()), HasSubstr("mixers[1].kvm." + c.path + ": got "));
  }
}

TEST(ValidateStack, AllSinksNeedARowThatTakesMerges) {
  StackSpec spec = Hybrid();
  KvmSpec& kvm = *spec.mutable_mixers(1)->mutable_kvm();
  kvm.set_num_sinks(8);
  EXPECT_TRUE(ValidateStack(spec).ok()) << ValidateStack(spec);  // 2·sqrt(24) = 9 rows at the first update
  kvm.mutable_budget()->set_factor(1.8);                         // 8 rows: all of them sinks
  EXPECT_THAT(std::string(ValidateStack(spec).message()), HasSubstr("mixers[1].kvm.num_sinks: got 8, expected less"));
}

TEST(ValidateStack, RefusesStacksOfImplausibleSize) {
  const absl::StatusOr<StackSpec> spec = ParseStackSpec(
      R"(vocab_size: 16777216 width: 4194304
         mixers { name: "a" attention { projections { num_heads: 1 } } }
         layers: ["a"])",
      "huge");
  EXPECT_THAT(std::string(spec.status().message()), HasSubstr("parameters"));
}

TEST(ValidateStack, AllowsTwoRotaryChannelsAndNone) {
  for (const int rotary_dim : {0, 2, 16}) {
    StackSpec spec = Hybrid();
    spec.mutable_mixers(2)->mutable_attention()->mutable_projections()->set_rotary_dim(rotary_dim);
    EXPECT_TRUE(ValidateStack(spec).ok()) << ValidateStack(spec);
  }
}

TEST(ValidateStack, WidthsNeedNotDivideWhenHeadSizesAreGiven) {
  StackSpec spec = Hybrid();
  ProjectionSpec& projections = *spec.mutable_mixers(2)->mutable_attention()->mutable_projections();
  projections.set_num_heads(3);
  EXPECT_FALSE(ValidateStack(spec).ok());
  projections.set_qk_head_dim(12);
  EXPECT_TRUE(ValidateStack(spec).ok()) << ValidateStack(spec);
}

TEST(AnchorLayer, IsTheFirstLayerOfTheAnchorsMixer) {
  StackSpec spec = Hybrid();
  EXPECT_EQ(AnchorLayer(spec, 0), 0);
  EXPECT_EQ(AnchorLayer(spec, 1), 1);
  EXPECT_EQ(AnchorLayer(spec, 3), 1);
  spec.mutable_mixers(1)->set_value_anchor("window");  // both have values of 16 channels
  ASSERT_TRUE(ValidateStack(spec).ok()) << ValidateStack(spec);
  EXPECT_EQ(AnchorLayer(spec, 1), 2);
  spec.mutable_mixers(1)->mutable_kvm()->mutable_projections()->set_value_residual(NONE);
  EXPECT_EQ(AnchorLayer(spec, 1), -1);
}

TEST(ResolveHeads, FillsInDefaults) {
  ProjectionSpec spec;
  spec.set_num_heads(6);
  HeadSizes sizes = ResolveHeads(spec, 768);
  EXPECT_EQ(sizes.num_kv_heads, 6);
  EXPECT_EQ(sizes.qk_dim, 128);
  EXPECT_EQ(sizes.v_dim, 128);
  spec.set_num_kv_heads(2);
  spec.set_v_head_dim(64);
  sizes = ResolveHeads(spec, 768);
  EXPECT_EQ(sizes.num_kv_heads, 2);
  EXPECT_EQ(sizes.qk_dim, 128);
  EXPECT_EQ(sizes.v_dim, 64);
}

TEST(DefaultRank, IsAMultipleOf32) {
  EXPECT_EQ(DefaultRank(1.3, 0.5, 768), 32);    // 36.0 / 32 = 1.13
  EXPECT_EQ(DefaultRank(1.8, 0.5, 768), 64);    // 49.9 / 32 = 1.56
  EXPECT_EQ(DefaultRank(0.6, 0.8, 768), 128);   // 122.1 / 32 = 3.81
  EXPECT_EQ(DefaultRank(0.6, 0.8, 32), 32);     // never less
  EXPECT_EQ(DefaultRank(1.8, 0.5, 4096), 128);  // 115.2 / 32 = 3.6
  EXPECT_EQ(DefaultRank(2.5, 0.5, 1024), 64);   // 80 / 32 = 2.5: ties go to the even multiple
}

TEST(MlpWidth, IsRoundedDownToAMultipleOf32) {
  StackSpec spec = Hybrid();
  spec.set_mlp_expansion(3.5);
  EXPECT_EQ(MlpWidth(spec), 96);  // 112
  spec.set_mlp_expansion(1);
  EXPECT_EQ(MlpWidth(spec), 32);
}

TEST(ToSlotBudget, CopiesEveryField) {
  BudgetSpec spec;
  spec.set_growth(BudgetSpec::SATURATION);
  spec.set_factor(3);
  spec.set_exponent(0.25);
  spec.set_limit(1024);
  spec.set_round_down(16);
  spec.set_min_rows(5);
  spec.set_max_chunks(7);
  const SlotBudget budget = ToSlotBudget(spec);
  EXPECT_EQ(budget.growth, SlotBudget::Growth::kSaturation);
  EXPECT_EQ(budget.factor, 3);
  EXPECT_EQ(budget.exponent, 0.25);
  EXPECT_EQ(budget.limit, 1024);
  EXPECT_EQ(budget.round_down, 16);
  EXPECT_EQ(budget.min_rows, 5);
  EXPECT_EQ(budget.max_chunks, 7);
}

}  // namespace
}  // namespace kvm
