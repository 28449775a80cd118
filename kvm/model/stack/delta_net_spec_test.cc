#include "kvm/model/stack/delta_net_spec.h"

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

std::string OneLayer(const std::string& mixer) {
  return "vocab_size: 64 width: 32 layers: \"m\" mixers { name: \"m\" " + mixer + " }";
}

DeltaNetSpec Resolved(const std::string& mixer) {
  const absl::StatusOr<StackSpec> spec = ParseStackSpec(OneLayer(mixer), "spec");
  EXPECT_TRUE(spec.ok()) << spec.status();
  if (!spec.ok()) return {};
  const MixerSpec& layer = spec->mixers(0);
  return layer.has_kimi_delta() ? ResolveDeltaNet(layer.kimi_delta(), 32)
                                : ResolveDeltaNet(layer.gated_delta_net(), 32);
}

TEST(ResolveDeltaNet, DefaultsFollowTheWidth) {
  const DeltaNetSpec gated = Resolved("gated_delta_net { num_heads: 4 }");
  EXPECT_EQ(gated.num_value_heads, 4);
  EXPECT_EQ(gated.qk_dim, 8);
  EXPECT_EQ(gated.v_dim, 16);
  EXPECT_EQ(gated.conv_size, 4);
  EXPECT_EQ(gated.history(), 3);
  EXPECT_FALSE(gated.conv_bias);
  EXPECT_EQ(gated.norm_epsilon, 1e-5);
  EXPECT_EQ(Resolved("kimi_delta { num_heads: 4 }").v_dim, 8);
}

TEST(ResolveDeltaNet, EverySizeCanBeNamed) {
  const DeltaNetSpec spec = Resolved(
      "kimi_delta { num_heads: 3 num_value_heads: 6 qk_head_dim: 5 v_head_dim: 7 convolution { size: 1 bias: true } }");
  EXPECT_EQ(spec.qk_width(), 15);
  EXPECT_EQ(spec.value_width(), 42);
  EXPECT_EQ(spec.conv_size, 1);
  EXPECT_EQ(spec.history(), 0);
  EXPECT_TRUE(spec.conv_bias);
}

TEST(ResolveDeltaNet, NoConvolutionHasNoBiasOrHistory) {
  const DeltaNetSpec spec = Resolved("gated_delta_net { num_heads: 2 convolution { enabled: false bias: true } }");
  EXPECT_EQ(spec.conv_size, 0);
  EXPECT_EQ(spec.history(), 0);
  EXPECT_FALSE(spec.conv_bias);
}

TEST(ValidateStack, DeltaNetsCanBeAnchorsOfValuesAsWide) {
  const auto parse = [](const std::string& v_head_dim) {
    return ParseStackSpec(R"(
        vocab_size: 64 width: 32 layers: ["d", "a"]
        mixers { name: "d" gated_delta_net { num_heads: 2 v_head_dim: )" +
                              v_head_dim + R"( } }
        mixers { name: "a" value_anchor: "d" attention { projections { num_heads: 2 rotary_dim: 2 } } })",
                          "spec");
  };
  const absl::StatusOr<StackSpec> spec = parse("16");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(AnchorLayer(*spec, 0), -1);
  EXPECT_EQ(AnchorLayer(*spec, 1), 0);
  EXPECT_TRUE(absl::StrContains(parse("8").status().message(), "with values of 16 channels"));
}

}  // namespace
}  // namespace kvm
