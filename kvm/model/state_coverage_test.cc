// Where mixers say that the past lies.

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/initializer.h"

namespace kvm {
namespace {

constexpr char kStack[] = R"(
    vocab_size: 20 width: 32
    mixers { name: "rwkv7" rwkv7 { num_heads: 2 } }
    mixers { name: "kvm" kvm { projections { num_heads: 2 rotary_dim: 8 } chunk_len: 8
                               budget { growth: POWER_LAW factor: 2 max_chunks: 100 } } }
    mixers { name: "attention" attention { projections { num_heads: 2 rotary_dim: 8 } } }
    mixers { name: "window" block_window { projections { num_heads: 2 rotary_dim: 8 } chunk_len: 8 } }
    mixers { name: "ovq" ovq { projections { num_heads: 2 rotary_dim: 8 } chunk_len: 5 max_centroids: 20 } }
    mixers { name: "gdn" gated_delta_net { num_heads: 2 v_head_dim: 16 } }
    layers: ["rwkv7", "kvm", "attention", "window", "ovq", "gdn"])";

std::vector<int64_t> CoverageAfter(int64_t tokens, int64_t layer) {
  ExecutionContext context(1);
  const StackSpec spec = ParseStackSpec(kStack, "kStack").value();
  const auto model = LanguageModel::Create(spec, *InitializeWeights(spec, {}, context.pool), {}).value();
  SequenceState state = model->NewSequence();
  EXPECT_TRUE(model->Extend({{&state, std::vector<int32_t>(tokens, 3), {}}}, context).ok());
  const StateCoverage coverage = state.layer(layer).Coverage();
  return {coverage.rows.begin, coverage.rows.end, coverage.window.begin, coverage.window.end};
}

using Ranges = std::vector<int64_t>;

// Windows are of two chunks of 8. The first chunk is in the rows at once.
TEST(StateCoverageTest, Kvm) {
  EXPECT_EQ(CoverageAfter(0, 1), (Ranges{0, 0, 0, 0}));
  EXPECT_EQ(CoverageAfter(5, 1), (Ranges{0, 5, 0, 5}));
  EXPECT_EQ(CoverageAfter(16, 1), (Ranges{0, 8, 0, 16}));
  EXPECT_EQ(CoverageAfter(21, 1), (Ranges{0, 8, 8, 21}));
  EXPECT_EQ(CoverageAfter(27, 1), (Ranges{0, 16, 16, 27}));
}

TEST(StateCoverageTest, MixersThatKeepKeysAsTheyAre) {
  EXPECT_EQ(CoverageAfter(21, 2), (Ranges{0, 0, 0, 21}));
  EXPECT_EQ(CoverageAfter(21, 3), (Ranges{0, 0, 8, 21}));
}

TEST(StateCoverageTest, OvqDictionaryAndTheChunkBeingFilled) {
  EXPECT_EQ(CoverageAfter(4, 4), (Ranges{0, 0, 0, 4}));
  EXPECT_EQ(CoverageAfter(21, 4), (Ranges{0, 20, 20, 21}));
}

TEST(StateCoverageTest, StatesOfAFixedSizeHaveNeither) {
  EXPECT_EQ(CoverageAfter(21, 0), (Ranges{0, 0, 0, 0}));
  EXPECT_EQ(CoverageAfter(21, 5), (Ranges{0, 0, 0, 0}));
}

}  // namespace
}  // namespace kvm
