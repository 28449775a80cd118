// The record of the row that every token went to: ModelOptions::provenance.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/model/mixers/kvm_mixer_testing.h"
#include "kvm/model/mixers/kvm_state.h"

namespace kvm {
namespace {

constexpr int64_t kHeads = 2, kValueDim = 6;
constexpr char kGrows[] = "budget { growth: POWER_LAW factor: 2 max_chunks: 10000 }";
constexpr char kFixed[] = "budget { min_rows: 11 }";

std::vector<std::string> Stacks() {
  const std::string heads = kTestHeads;
  return {heads + kGrows, heads + kFixed, heads + kFixed + " num_sinks: 3 second_merge: 0.25 merge_decay: 0.9",
          heads + "head_budgets { min_rows: 8 } head_budgets " + std::string(kGrows).substr(7)};
}

TEST(KvmProvenanceTest, ChangesNoBit) {
  for (const std::string& text : Stacks()) {
    for (const std::vector<int64_t>& pieces : {std::vector<int64_t>{kTestTokens}, {1}, {13, 2}}) {
      ExpectSameBits(KvmLayer(text).Run(pieces), KvmLayer(text, DType::kF32, true).Run(pieces, 2));
    }
  }
}

TEST(KvmProvenanceTest, CostsFourBytesForATokenAndHead) {
  // The window of two chunks begins at 5 · 8; what is before has gone to rows.
  for (const std::string& text : Stacks()) {
    EXPECT_EQ(KvmLayer(text, DType::kF32, true).Run().byte_size, KvmLayer(text).Run().byte_size + 40 * 4 * kHeads);
  }
}

// With neither gates nor decay a row's value sum is the sum of the values of the tokens that are said to be in it.
TEST(KvmProvenanceTest, RowsAreTheSumsOfTheirTokens) {
  const std::string text = std::string(kTestHeads) + kGrows + " gate_keys: false gate_values: false";
  const KvmLayer layer(text, DType::kF32, true);
  const std::vector<float> x = TestInputs();
  const std::unique_ptr<MixerState> mixer_state = layer.mixer->NewState();
  const KvmState& state = static_cast<const KvmState&>(*mixer_state);
  ExecutionContext context(1);
  std::vector<float> out(kTestWidth), keys(8), values(kTestTokens * kHeads * kValueDim);
  for (int64_t t = 0; t < kTestTokens; ++t) {
    const SequenceRows sequence = {0, 1, t, mixer_state.get()};
    layer.mixer->Extend({x.data() + t * kTestWidth, 1, kTestWidth}, {}, {&sequence, 1}, {out.data(), 1, kTestWidth},
                        context);
    for (int64_t h = 0; h < kHeads; ++h) {
      state.window.Read(h, t, 1, {keys.data(), 1, 8}, {&values[(t * kHeads + h) * kValueDim], 1, kValueDim});
    }
  }
  ASSERT_EQ(state.covered, 40);
  for (int64_t h = 0; h < kHeads; ++h) {
    const std::vector<int32_t>& row_of_token = state.row_of_token[h];
    ASSERT_EQ(row_of_token.size(), 40u);
    std::vector<double> sums(state.heads[h].count() * kValueDim);
    std::map<int32_t, int64_t> tokens_in;
    for (int64_t t = 0; t < 40; ++t) {
      ++tokens_in[row_of_token[t]];
      for (int64_t c = 0; c < kValueDim; ++c) {
        sums[row_of_token[t] * kValueDim + c] += values[(t * kHeads + h) * kValueDim + c];
      }
    }
    ASSERT_LT(tokens_in.size(), 40u);  // some were merged
    EXPECT_EQ(static_cast<int64_t>(tokens_in.size()), state.heads[h].count());
    for (size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(state.heads[h].value_sums()[i], sums[i], 1e-5) << i;
  }
}

}  // namespace
}  // namespace kvm
