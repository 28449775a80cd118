#include "kvm/model/stack/stack_spec.h"

#include <limits>
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

TEST(ParseStackSpec, NumbersBeyondTheirTypeNameTheBound) {
  const absl::StatusOr<StackSpec> spec = ParseStackSpec("width: 99999999999", "s");
  EXPECT_THAT(
      std::string(spec.status().message()),
      ::testing::HasSubstr("s:1:8: Integer out of range (99999999999); expected a whole number of at most 16777216"));
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
  spec.mutable_mixers(1)->mutable_kvm()->mutable_projections()->set_value_residual(ProjectionSpec::NONE);
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
  EXPECT_EQ(ToSlotBudget(spec).append_below, std::numeric_limits<double>::infinity());
  spec.set_append_below(-2.5);
  const SlotBudget budget = ToSlotBudget(spec);
  EXPECT_EQ(budget.growth, SlotBudget::Growth::kSaturation);
  EXPECT_EQ(budget.factor, 3);
  EXPECT_EQ(budget.exponent, 0.25);
  EXPECT_EQ(budget.limit, 1024);
  EXPECT_EQ(budget.round_down, 16);
  EXPECT_EQ(budget.min_rows, 5);
  EXPECT_EQ(budget.max_chunks, 7);
  EXPECT_EQ(budget.append_below, -2.5);
}

TEST(ToHeadBudgets, SharesOneBudgetOrGivesEachHeadItsOwn) {
  KvmSpec spec = Hybrid().mixers(1).kvm();
  std::vector<SlotBudget> budgets = ToHeadBudgets(spec);
  ASSERT_EQ(budgets.size(), 2u);
  EXPECT_EQ(budgets[0].factor, 2);
  EXPECT_EQ(budgets[1].factor, 2);
  spec.mutable_projections()->clear_num_kv_heads();
  EXPECT_EQ(ToHeadBudgets(spec).size(), 4u);
  spec.add_head_budgets()->set_min_rows(5);
  spec.add_head_budgets()->set_min_rows(6);
  budgets = ToHeadBudgets(spec);
  ASSERT_EQ(budgets.size(), 2u);
  EXPECT_EQ(budgets[0].min_rows, 5);
  EXPECT_EQ(budgets[1].min_rows, 6);
}

}  // namespace
}  // namespace kvm
