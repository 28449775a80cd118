#include "kvm/model/stack/stack_plan.h"

#include "gtest/gtest.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

StackPlan PlanOf(const std::string& text) { return MakeStackPlan(ParseStackSpec(text, "test").value()); }

TEST(StackPlanTest, LayersOfOneAnchorShareIt) {
  const StackPlan plan = PlanOf(R"(
    width: 64 vocab_size: 10
    mixers { name: "a" attention { projections { num_heads: 2 rotary_dim: 0 } } }
    mixers { name: "b" value_anchor: "a" attention { projections { num_heads: 2 rotary_dim: 0 } } }
    mixers { name: "c" attention { projections { num_heads: 2 rotary_dim: 0 } } }
    mixers { name: "d" attention { projections { num_heads: 2 rotary_dim: 0 value_residual: NONE } } }
    layers: ["c", "b", "d", "a", "a"])");
  EXPECT_EQ(plan.anchor_layers, (std::vector<int>{0, 3}));
  std::vector<int> anchors, mixers;
  for (const LayerPlan& layer : plan.layers) {
    anchors.push_back(layer.anchor);
    mixers.push_back(layer.mixer);
    EXPECT_FALSE(layer.pushes_skip);
    EXPECT_EQ(layer.takes_skip, -1);
  }
  EXPECT_EQ(anchors, (std::vector<int>{0, 1, -1, 1, 1}));
  EXPECT_EQ(mixers, (std::vector<int>{2, 1, 3, 0, 0}));
  EXPECT_EQ(plan.layers[3].prefix, "transformer.h.3.");
}

TEST(StackPlanTest, TheFirstHalfPushesWhatTheSecondHalfTakes) {
  const StackPlan plan = PlanOf(R"(
    width: 64 vocab_size: 10 skip_connections: true
    mixers { name: "r" rwkv7 { num_heads: 1 } }
    layers: ["r", "r", "r", "r"])");
  std::vector<int> takes;
  std::vector<bool> pushes;
  for (const LayerPlan& layer : plan.layers) {
    takes.push_back(layer.takes_skip);
    pushes.push_back(layer.pushes_skip);
  }
  EXPECT_EQ(takes, (std::vector<int>{-1, -1, 0, 1}));
  EXPECT_EQ(pushes, (std::vector<bool>{true, true, false, false}));
}

}  // namespace
}  // namespace kvm
