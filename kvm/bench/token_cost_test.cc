#include "kvm/bench/token_cost.h"

#include "gtest/gtest.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

constexpr int64_t kWidth = 32;

StackSpec Parse(const char* text) {
  absl::StatusOr<StackSpec> spec = ParseStackSpec(text, "test");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *std::move(spec);
}

// One layer with two heads of 16 channels, MLP 64, and a mixer of the given text.
StackSpec OneLayer(const std::string& mixer) {
  const std::string text =
      "vocab_size: 10 width: 32 mlp_expansion: 2 mixers { name: \"m\" " + mixer + " } layers: \"m\"";
  return Parse(text.c_str());
}

constexpr char kProjections[] = "projections { num_heads: 2 rotary_dim: 4 value_residual: NONE }";

MixerCost At(const std::string& mixer, int64_t position, DType dtype = DType::kF32) {
  return CostOfMixer(OneLayer(mixer).mixers(0), kWidth, dtype, position);
}

// A key costs 2 products of 16 channels in each of 2 heads: 2·2·32 operations; and 2·32 numbers are read.
constexpr double kKeyFlop = 128;
constexpr double kKeyBytes = 256;

TEST(TokenCostTest, FullAttentionSeesEverything) {
  const std::string mixer = std::string("attention { ") + kProjections + " }";
  EXPECT_EQ(At(mixer, 0).flop, kKeyFlop);
  EXPECT_EQ(At(mixer, 99).flop, 100 * kKeyFlop);
  EXPECT_EQ(At(mixer, 99).bytes, 100 * kKeyBytes);
  EXPECT_EQ(At(mixer, 99, DType::kBF16).bytes, 50 * kKeyBytes);
}

TEST(TokenCostTest, SlidingWindowSeesItsWindow) {
  const std::string mixer = std::string("attention { window: 8 ") + kProjections + " }";
  EXPECT_EQ(At(mixer, 4).flop, 5 * kKeyFlop);
  EXPECT_EQ(At(mixer, 99).flop, 8 * kKeyFlop);
}

TEST(TokenCostTest, GroupedKeysAreReadOnce) {
  const MixerCost cost = At("attention { projections { num_heads: 2 num_kv_heads: 1 rotary_dim: 4 } }", 9);
  EXPECT_EQ(cost.flop, 10 * kKeyFlop);
  EXPECT_EQ(cost.bytes, 10 * kKeyBytes / 2);
}

TEST(TokenCostTest, BlockWindowSeesBlocksAndSinks) {
  const std::string mixer =
      std::string("block_window { chunk_len: 8 window_chunks: 2 num_sinks: 3 ") + kProjections + "}";
  EXPECT_EQ(At(mixer, 15).flop, 16 * kKeyFlop);
  // Total 20: blocks 8..15 and 16..19, and three sinks.
  EXPECT_EQ(At(mixer, 19).flop, 15 * kKeyFlop);
}

TEST(TokenCostTest, KvmSeesRowsAndWindowAndRoutes) {
  const std::string mixer = std::string("kvm { chunk_len: 8 window_chunks: 2 ") + kProjections +
                            " budget { growth: FIXED min_rows: 8 max_chunks: 1 } }";
  EXPECT_EQ(At(mixer, 15).flop, 16 * kKeyFlop);
  // Total 20: 12 keys of the window, 8 rows, and a product of 16 channels with the rows in each head.
  EXPECT_EQ(At(mixer, 19).flop, 20 * kKeyFlop + 2 * 2 * 16 * 8);
  EXPECT_EQ(At(mixer, 19).bytes, 20 * kKeyBytes);
  // Rows of bytes with two scales a head, windows of bfloat16.
  EXPECT_EQ(At(mixer, 19, DType::kI8).bytes, 12 * kKeyBytes / 2 + 8 * (kKeyBytes / 4 + 2 * 8));
}

TEST(TokenCostTest, OvqSeesItsDictionaryAndItsChunk) {
  const std::string mixer = "ovq { chunk_len: 8 max_centroids: 8 projections { num_heads: 2 value_residual: NONE } }";
  EXPECT_EQ(At(mixer, 7).flop, 8 * kKeyFlop);
  // 16 tokens make floor(16·8/24) = 5 centroids; 4 tokens are pending.
  EXPECT_EQ(At(mixer, 19).flop, 9 * kKeyFlop + 2 * 2 * 16 * 5);
}

TEST(TokenCostTest, RecurrencesCostTheSameEverywhere) {
  // Two heads of 16 x 16.
  EXPECT_EQ(At("rwkv7 { num_heads: 2 }", 0).flop, 9 * 512);
  EXPECT_EQ(At("rwkv7 { num_heads: 2 }", 1000).bytes, 4 * 512);
  // Two heads of 16 x 32.
  EXPECT_EQ(At("gated_delta_net { num_heads: 2 }", 5).flop, 7 * 1024);
  EXPECT_EQ(At("kimi_delta { num_heads: 2 }", 5).bytes, 4 * 512);
}

TEST(TokenCostTest, WeightsAreThoseOfProducts) {
  const StackSpec spec = OneLayer(std::string("attention { ") + kProjections + " }");
  // Four projections and the MLP's two, a multiply-add each.
  EXPECT_EQ(LayerWeightFlop(spec), 2 * (4 * 32 * 32 + 2 * 32 * 64));
  EXPECT_EQ(HeadFlop(spec), 2 * 10 * 32);
}

TEST(TokenCostTest, LayersAddUp) {
  const StackSpec spec = Parse(R"(
      width: 32
      mixers { name: "r" rwkv7 { num_heads: 2 } }
      mixers { name: "d" kimi_delta { num_heads: 2 } }
      layers: ["r", "d", "r"])");
  EXPECT_EQ(CostOfMixers(spec, DType::kF32, 3).flop, (2 * 9 + 7) * 512);
}

TEST(TokenCostTest, PrefillIsAllItsTokens) {
  const StackSpec spec = OneLayer(std::string("attention { ") + kProjections + " }");
  const double flop = PrefillFlop(spec, 100, 300) - 300 * LayerWeightFlop(spec);
  double sum = 0;
  for (int64_t position = 100; position < 400; ++position) sum += kKeyFlop * static_cast<double>(position + 1);
  EXPECT_NEAR(flop / sum, 1, 0.01);
}

}  // namespace
}  // namespace kvm
