#include "kvm/model/engine/state_size.h"

#include <string>

#include "gtest/gtest.h"
#include "kvm/model/stack/stack_spec.h"
#include "testing/allocation_peak.h"

namespace kvm {
namespace {

StackSpec Parse(const std::string& text) {
  absl::StatusOr<StackSpec> spec = ParseStackSpec(text, "spec");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

// A spec with one layer of width 32.
StackSpec OneLayer(const std::string& mixer) {
  return Parse("vocab_size: 64 width: 32 layers: \"m\" mixers { name: \"m\" " + mixer + " }");
}

StateSize SizeOfOne(const std::string& mixer, DType dtype, int64_t context) {
  return SequenceStateSize(OneLayer(mixer), dtype, context);
}

TEST(StateSize, Rwkv7IsConstant) {
  const std::string mixer = "rwkv7 { num_heads: 2 token_shift: false }";
  const int64_t bytes = (2 * 16 * 16 + 32) * 4;
  EXPECT_EQ(SizeOfOne(mixer, DType::kF32, 0).bytes, bytes);
  EXPECT_EQ(SizeOfOne(mixer, DType::kBF16, 1000000).bytes, bytes);
  // A value anchor that shifts keeps the last input as well.
  EXPECT_EQ(SizeOfOne("rwkv7 { num_heads: 2 }", DType::kF32, 1).bytes, bytes + 32 * 4);
}

TEST(StateSize, FullAttentionCountsWholeBlocks) {
  const std::string mixer = "attention { projections { num_heads: 4 num_kv_heads: 2 rotary_dim: 2 } }";
  const int64_t block = 2 * 256 * (8 + 8) * 4;
  EXPECT_EQ(SizeOfOne(mixer, DType::kF32, 0).bytes, 0);
  EXPECT_EQ(SizeOfOne(mixer, DType::kF32, 1).bytes, block);
  EXPECT_EQ(SizeOfOne(mixer, DType::kF32, 256).bytes, block);
  EXPECT_EQ(SizeOfOne(mixer, DType::kF32, 257).bytes, 2 * block);
  EXPECT_EQ(SizeOfOne(mixer, DType::kBF16, 257).bytes, block);
}

TEST(StateSize, SlidingWindowDropsBlocksThatNoQuerySees) {
  const std::string mixer = "attention { projections { num_heads: 2 rotary_dim: 2 } window: 100 }";
  const int64_t block = 2 * 256 * (16 + 16) * 4;
  EXPECT_EQ(SizeOfOne(mixer, DType::kF32, 256).bytes, block);
  EXPECT_EQ(SizeOfOne(mixer, DType::kF32, 257).bytes, 2 * block);
  // The query at 354 sees 255..354, that at 355 sees 256..355.
  EXPECT_EQ(SizeOfOne(mixer, DType::kF32, 354).bytes, 2 * block);
  EXPECT_EQ(SizeOfOne(mixer, DType::kF32, 355).bytes, block);
}

TEST(StateSize, BlockWindowsKeepChunksAndSinks) {
  const std::string projections = "projections { num_heads: 4 num_kv_heads: 2 rotary_dim: 2 } chunk_len: 16 ";
  const std::string mixer = "block_window { " + projections + "window_chunks: 2 num_sinks: 3 }";
  const int64_t block = 2 * 16 * (8 + 8) * 4;
  const int64_t sinks = 2 * (16 * 8 + 3 * 8) * 4;  // keys lie in panels of 16
  EXPECT_EQ(SizeOfOne(mixer, DType::kF32, 0).bytes, 0);
  EXPECT_EQ(SizeOfOne(mixer, DType::kF32, 1).bytes, block);
  EXPECT_EQ(SizeOfOne(mixer, DType::kF32, 32).bytes, 2 * block);
  EXPECT_EQ(SizeOfOne(mixer, DType::kF32, 33).bytes, 2 * block + sinks);
  EXPECT_EQ(SizeOfOne(mixer, DType::kBF16, 100001).bytes, block + sinks / 2);
  EXPECT_EQ(SizeOfOne("block_window { " + projections + "num_sinks: 0 }", DType::kF32, 33).bytes, 2 * block);
}

TEST(StateSize, OvqDictionariesGrowChunkByChunk) {
  const std::string projections = "projections { num_heads: 2 } chunk_len: 4 max_centroids: 10 ";
  const int64_t pending = 2 * (16 * 16 + 4 * 16) * 4;  // keys lie in panels of 16
  // Of both heads; keys lie in panels of 16, of which the first is never full here.
  const auto dictionary = [](int64_t centroids) {
    return 2 * ((centroids > 0 ? 16 * 16 : 0) + centroids * (16 + 2)) * 4;
  };
  // floor(t·10/(t + 10)) or min(t, 10) after t = 0, 4, 8, 12, 400 tokens in complete chunks.
  const int64_t lengths[] = {0, 3, 4, 7, 8, 13, 401};
  const int64_t saturating[] = {0, 0, 2, 2, 4, 5, 9};
  const int64_t linear[] = {0, 0, 4, 4, 8, 10, 10};
  for (int i = 0; i < 7; ++i) {
    const int64_t begun = lengths[i] % 4 == 0 ? 0 : pending;
    const StateSize some = SizeOfOne("ovq { " + projections + "}", DType::kF32, lengths[i]);
    EXPECT_EQ(some.rows, saturating[i]) << lengths[i];
    EXPECT_EQ(some.bytes, begun + dictionary(saturating[i])) << lengths[i];
    // Dictionaries are float32 whatever the dtype.
    const StateSize more = SizeOfOne("ovq { " + projections + "grow_linearly: true }", DType::kBF16, lengths[i]);
    EXPECT_EQ(more.rows, linear[i]) << lengths[i];
    EXPECT_EQ(more.bytes, begun / 2 + dictionary(linear[i])) << lengths[i];
  }
}

TEST(StateSize, ShiftHistories) {
  const std::string heads = "num_heads: 4 num_kv_heads: 2 rotary_dim: 2 ";
  EXPECT_EQ(SizeOfOne("attention { projections { " + heads + "token_shift: true } }", DType::kF32, 0).bytes,
            (32 + 16 + 16 + 32) * 4);
  EXPECT_EQ(
      SizeOfOne("attention { projections { " + heads + "value_residual: RWKV_POST_TOKEN_SHIFT } }", DType::kF32, 0)
          .bytes,
      32 * 4);
}

// Two heads of 16 channels, chunks of 4, a window of two chunks.
std::string Kvm(const std::string& more) {
  return "kvm { projections { num_heads: 2 rotary_dim: 2 } chunk_len: 4 " + more + " }";
}

int64_t KvmBytes(int64_t rows, int64_t blocks, int64_t gates) {
  const int64_t row = (16 + 16 + 1) * 4 + 16 * 4;
  const int64_t readout_keys = rows == 0 ? 0 : 16 * 16 * 4;  // one panel of 16
  const int64_t block = 2 * (16 * 16 + 4 * 16) * 4;
  return 2 * (rows * row + readout_keys) + blocks * block + 2 * gates * 4;
}

TEST(StateSize, KvmWithFixedBudgetStopsGrowing) {
  const std::string mixer = Kvm("budget { min_rows: 4 }");
  const int64_t lengths[] = {0, 1, 4, 5, 8, 9, 12, 13, 1001};
  const int64_t rows[] = {0, 1, 4, 4, 4, 4, 4, 4, 4};
  const int64_t blocks[] = {0, 1, 1, 2, 2, 2, 2, 2, 2};
  const int64_t positions[] = {0, 1, 4, 5, 8, 5, 8, 5, 5};
  for (int i = 0; i < 9; ++i) {
    const StateSize size = SizeOfOne(mixer, DType::kF32, lengths[i]);
    EXPECT_EQ(size.rows, rows[i]) << lengths[i];
    EXPECT_EQ(size.bytes, KvmBytes(rows[i], blocks[i], positions[i])) << lengths[i];
  }
}

TEST(StateSize, KvmRowsFollowThePowerLaw) {
  const std::string mixer =
      Kvm("gate_keys: false gate_values: false budget { growth: POWER_LAW factor: 2 max_chunks: 99 }");
  // The chunk 4..7 enters at length 13 with a budget of 2·sqrt(12) = 6.9, 8..11 at 17 with 2·sqrt(16) = 8,
  // 12..15 at 21 with 2·sqrt(20) = 8.9, 16..19 at 25 with 2·sqrt(24) = 9.8.
  const int64_t lengths[] = {12, 13, 16, 17, 20, 21, 25};
  const int64_t rows[] = {4, 6, 6, 8, 8, 8, 9};
  for (int i = 0; i < 7; ++i) {
    const StateSize size = SizeOfOne(mixer, DType::kF32, lengths[i]);
    EXPECT_EQ(size.rows, rows[i]) << lengths[i];
    EXPECT_EQ(size.bytes, KvmBytes(rows[i], 2, 0)) << lengths[i];
  }
}

TEST(StateSize, KvmAppendsAtMostAChunkAtATime) {
  const std::string mixer = Kvm("budget { min_rows: 1000 max_chunks: 1000 }");
  EXPECT_EQ(SizeOfOne(mixer, DType::kF32, 12).rows, 4);
  EXPECT_EQ(SizeOfOne(mixer, DType::kF32, 13).rows, 8);
  EXPECT_EQ(SizeOfOne(mixer, DType::kF32, 17).rows, 12);
}

TEST(StateSize, IntegersAreForRowsAlone) {
  const std::string kvm = Kvm("budget { min_rows: 4 }");
  const int64_t row = (16 + 16 + 1) * 4 + 16 + 2 * 4;  // two scales
  const int64_t readout_keys = 16 * 16;
  const int64_t block = 2 * (16 * 16 + 4 * 16) * 2;  // bfloat16
  EXPECT_EQ(SizeOfOne(kvm, DType::kI8, 13).bytes, 2 * (4 * row + readout_keys) + 2 * block + 2 * 5 * 4);
  const std::string attention = "attention { projections { num_heads: 2 rotary_dim: 2 } }";
  EXPECT_EQ(SizeOfOne(attention, DType::kI8, 300).bytes, SizeOfOne(attention, DType::kBF16, 300).bytes);
  EXPECT_EQ(FullCacheByteSize(OneLayer(attention), DType::kI8, 300),
            FullCacheByteSize(OneLayer(attention), DType::kBF16, 300));
}

TEST(StateSize, HeadsWithBudgetsOfTheirOwn) {
  const std::string growth = "growth: POWER_LAW factor: 2 max_chunks: 99 ";
  const auto size = [](const std::string& budgets) {
    return SizeOfOne(Kvm("gate_keys: false gate_values: false " + budgets), DType::kF32, 25);
  };
  const StateSize both = size("head_budgets { min_rows: 4 } head_budgets { " + growth + "}");
  EXPECT_EQ(both.rows, 9);
  EXPECT_EQ(2 * both.bytes, size("budget { min_rows: 4 }").bytes + size("budget { " + growth + "}").bytes);
  // What adapts is counted at its bound.
  EXPECT_EQ(size("budget { " + growth + "append_below: 1 }").bytes, size("budget { " + growth + "}").bytes);
}

TEST(StateSize, IsABoundWhereAnyBudgetAdapts) {
  const auto is_bound = [](const std::string& mixer) { return IsUpperBound(OneLayer(mixer).mixers(0)); };
  EXPECT_FALSE(is_bound("rwkv7 { num_heads: 2 }"));
  EXPECT_FALSE(is_bound(Kvm("budget { min_rows: 4 }")));
  EXPECT_TRUE(is_bound(Kvm("budget { min_rows: 4 append_below: 1e9 }")));
  EXPECT_TRUE(is_bound(Kvm("head_budgets { min_rows: 4 } head_budgets { min_rows: 4 append_below: -inf }")));
}

TEST(StateSize, StacksAddTheirLayersAndMlpShifts) {
  const StackSpec spec = Parse(R"(
      vocab_size: 64 width: 32 mlp_token_shift: true
      mixers { name: "r" rwkv7 { num_heads: 2 } }
      mixers { name: "a" attention { projections { num_heads: 2 rotary_dim: 2 value_residual: NONE } } }
      layers: ["a", "r", "r"])");
  const int64_t attention = 2 * 256 * (16 + 16) * 4;
  const int64_t rwkv7 = (2 * 16 * 16 + 32) * 4;
  EXPECT_EQ(SequenceStateSize(spec, DType::kF32, 10).bytes, attention + 2 * rwkv7 + (1 + 3) * 32 * 4);
}

TEST(StateSize, EndsWhereSizesWouldNotFit) {
  StackSpec spec = Parse(R"(
      vocab_size: 1 width: 1 mlp_expansion: 32
      mixers { name: "k" kvm { projections { num_heads: 1 qk_head_dim: 16777216 v_head_dim: 16777216 rotary_dim: 0
                                             value_gate_rank: 1 }
                               chunk_len: 16777216 } })"
                         R"(layers: "k")");
  while (spec.layers_size() < 4096) spec.add_layers("k");
  ASSERT_TRUE(ValidateStack(spec).ok()) << ValidateStack(spec);
  EXPECT_EQ(SequenceStateSize(spec, DType::kF32, 1 << 20).bytes, int64_t{1} << 61);
}

TEST(FullCacheByteSize, CountsEveryLayerAsAttention) {
  const StackSpec hybrid = Parse(R"(
      vocab_size: 64 width: 32
      mixers { name: "r" rwkv7 { num_heads: 2 } }
      mixers { name: "a" attention { projections { num_heads: 4 num_kv_heads: 2 rotary_dim: 2 } } }
      layers: ["r", "a", "r"])");
  EXPECT_EQ(FullCacheByteSize(hybrid, DType::kBF16, 1000), 3 * 1000 * 2 * (8 + 8) * 2);
  EXPECT_EQ(FullCacheByteSize(OneLayer("rwkv7 { num_heads: 2 }"), DType::kF32, 10), 10 * 2 * 32 * 4);
}

// No list with an entry for each of 2^24 heads.
TEST(StateSize, ManyHeadsTakeNoMemory) {
  const StackSpec spec = Parse(
      R"(width: 1 vocab_size: 1 mlp_expansion: 32 layers: "k" mixers { name: "k" kvm { projections {
             num_heads: 16777216 qk_head_dim: 1 v_head_dim: 1 rotary_dim: 0 } } })");
  StateSize size;
  EXPECT_LE(AllocationPeak([&] { size = SequenceStateSize(spec, DType::kF32, 1); }), size_t{1} << 14);
  EXPECT_GT(size.bytes, int64_t{1} << 24);
  EXPECT_LE(AllocationPeak([&] { EXPECT_FALSE(IsUpperBound(spec.mixers(0))); }), size_t{1} << 14);
}

}  // namespace
}  // namespace kvm
