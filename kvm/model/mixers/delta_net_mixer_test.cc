// Stacks with delta rule layers keep the promises of all mixers. Numbers are checked against published ones by
// //testing:golden_layers_test.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/kernels/tensor.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/state_size.h"
#include "kvm/model/weights/initializer.h"

namespace kvm {
namespace {

constexpr int64_t kVocab = 64;

// Both kinds beside KVM, with shared query/key heads, odd sizes, biases, and value anchors among the layers.
constexpr char kHybrid[] = R"(
    vocab_size: 64 width: 32 mlp_expansion: 1 mlp_token_shift: true
    mixers {
      name: "gdn"
      gated_delta_net {
        num_heads: 2 num_value_heads: 4 qk_head_dim: 6 v_head_dim: 8 allow_negative_eigenvalues: true
      }
    }
    mixers { name: "kda" kimi_delta { num_heads: 3 qk_head_dim: 5 v_head_dim: 7 convolution { size: 3 bias: true } } }
    mixers {
      name: "kvm" value_anchor: "gdn"
      kvm { projections { num_heads: 2 rotary_dim: 8 token_shift: true } chunk_len: 8 budget { min_rows: 8 } }
    }
    layers: ["gdn", "kda", "kvm", "gdn"])";

constexpr char kOptions[] = R"(
    vocab_size: 64 width: 32 mlp_expansion: 1
    mixers { name: "plain" gated_delta_net { num_heads: 2 output_gate: false convolution { enabled: false } } }
    mixers { name: "bounded" kimi_delta { num_heads: 2 decay_lower_bound: -5 convolution { size: 1 } } }
    mixers { name: "long" gated_delta_net { num_heads: 1 v_head_dim: 20 convolution { size: 16 } } }
    layers: ["plain", "bounded", "long"])";

std::unique_ptr<LanguageModel> NewModel(const std::string& text) {
  const absl::StatusOr<StackSpec> spec = ParseStackSpec(text, "spec");
  EXPECT_TRUE(spec.ok()) << spec.status();
  ThreadPool pool(1);
  InitializerOptions options;
  options.block_output_gain = 1;  // otherwise no layer would do anything
  const std::unique_ptr<WeightSource> weights = InitializeWeights(*spec, options, pool);
  absl::StatusOr<std::unique_ptr<LanguageModel>> model = LanguageModel::Create(*spec, *weights, {});
  EXPECT_TRUE(model.ok()) << model.status();
  return std::move(*model);
}

std::vector<int32_t> Tokens(int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>((i * i * 7 + i * 3 + 5) % kVocab));
  return tokens;
}

// Appends the logits of tokens first..last, fed `piece` at a time.
void Feed(const LanguageModel& model, const std::vector<int32_t>& tokens, int64_t first, int64_t last, int64_t piece,
          SequenceState* sequence, ExecutionContext& context, std::vector<float>* logits) {
  for (int64_t begin = first; begin < last; begin += piece) {
    const int64_t count = std::min(piece, last - begin);
    std::vector<float> part(count * kVocab);
    const absl::Status status = model.Extend({{sequence,
                                               {tokens.data() + begin, static_cast<size_t>(count)},
                                               MatrixView<float>(part.data(), count, kVocab)}},
                                             context);
    ASSERT_TRUE(status.ok()) << status;
    logits->insert(logits->end(), part.begin(), part.end());
  }
}

// The names of tensors whose bytes differ.
std::string Differences(const SequenceState& a, const SequenceState& b) {
  const std::vector<NamedTensor> x = a.Export(), y = b.Export();
  if (x.size() != y.size()) return "different tensors";
  std::string names;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool same = x[i].name == y[i].name && x[i].tensor.shape() == y[i].tensor.shape() &&
                      std::memcmp(x[i].tensor.bytes(), y[i].tensor.bytes(), x[i].tensor.byte_size()) == 0;
    if (!same) absl::StrAppend(&names, x[i].name, " ");
  }
  return names;
}

class DeltaNetStack : public ::testing::TestWithParam<const char*> {
 protected:
  const std::unique_ptr<LanguageModel> model_ = NewModel(GetParam());
  const std::vector<int32_t> tokens_ = Tokens(45);
  ExecutionContext context_{1};
};

TEST_P(DeltaNetStack, PiecesAndThreadsChangeNoBit) {
  SequenceState whole = model_->NewSequence();
  std::vector<float> expected;
  Feed(*model_, tokens_, 0, 45, 45, &whole, context_, &expected);
  for (const float logit : expected) ASSERT_TRUE(std::isfinite(logit));
  for (const int64_t piece : {1, 2, 7, 20, 44}) {
    for (const int threads : {1, 3}) {
      ExecutionContext context(threads, /*oversubscribe=*/true);
      SequenceState sequence = model_->NewSequence();
      std::vector<float> logits;
      Feed(*model_, tokens_, 0, 45, piece, &sequence, context, &logits);
      EXPECT_TRUE(logits == expected) << piece << ", " << threads;
      EXPECT_EQ(Differences(sequence, whole), "") << piece << ", " << threads;
    }
  }
}

TEST_P(DeltaNetStack, BatchNeighboursChangeNoBit) {
  std::vector<float> alone, expected_long, together(20 * kVocab), longer(45 * kVocab);
  SequenceState a = model_->NewSequence(), b = model_->NewSequence();
  Feed(*model_, tokens_, 0, 20, 20, &a, context_, &alone);
  Feed(*model_, tokens_, 0, 45, 45, &b, context_, &expected_long);
  SequenceState c = model_->NewSequence(), d = model_->NewSequence();
  ExecutionContext context(2);
  const absl::Status status =
      model_->Extend({{&d, tokens_, MatrixView<float>(longer.data(), 45, kVocab)},
                      {&c, {tokens_.data(), 20}, MatrixView<float>(together.data(), 20, kVocab)}},
                     context);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(together == alone);
  EXPECT_TRUE(longer == expected_long);
  EXPECT_EQ(Differences(c, a), "");
  EXPECT_EQ(Differences(d, b), "");
}

TEST_P(DeltaNetStack, ForksGoTheirOwnWay) {
  std::vector<float> expected, forked, other;
  SequenceState sequence = model_->NewSequence();
  Feed(*model_, tokens_, 0, 21, 21, &sequence, context_, &expected);
  SequenceState fork = sequence.Fork();
  std::vector<int32_t> detour = tokens_;
  for (int32_t& token : detour) token = (token + 1) % kVocab;
  Feed(*model_, detour, 21, 45, 5, &sequence, context_, &other);
  Feed(*model_, tokens_, 21, 45, 5, &fork, context_, &forked);

  SequenceState straight = model_->NewSequence();
  expected.clear();
  Feed(*model_, tokens_, 0, 45, 45, &straight, context_, &expected);
  EXPECT_TRUE(std::equal(forked.begin(), forked.end(), expected.begin() + 21 * kVocab));
  EXPECT_FALSE(other == forked);
  EXPECT_EQ(Differences(fork, straight), "");
}

TEST_P(DeltaNetStack, LaterTokensChangeNoEarlierOutput) {
  std::vector<float> expected, changed;
  SequenceState a = model_->NewSequence(), b = model_->NewSequence();
  Feed(*model_, tokens_, 0, 45, 45, &a, context_, &expected);
  std::vector<int32_t> other = tokens_;
  other[30] = (other[30] + 1) % kVocab;
  Feed(*model_, other, 0, 45, 45, &b, context_, &changed);
  EXPECT_TRUE(std::equal(expected.begin(), expected.begin() + 30 * kVocab, changed.begin()));
  EXPECT_FALSE(std::equal(expected.begin() + 44 * kVocab, expected.end(), changed.begin() + 44 * kVocab));
}

TEST_P(DeltaNetStack, StateSizeIsForetold) {
  SequenceState sequence = model_->NewSequence();
  std::vector<float> logits;
  for (int64_t length : {0, 1, 3, 17, 30}) {
    Feed(*model_, tokens_, sequence.position(), length, 7, &sequence, context_, &logits);
    EXPECT_EQ(sequence.ByteSize(), SequenceStateSize(model_->spec(), DType::kF32, length).bytes) << length;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeltaNetStack, ::testing::Values(kHybrid, kOptions),
                         [](const auto& info) { return info.index == 0 ? "Hybrid" : "Options"; });

TEST(DeltaNetState, ExportsMatricesAndHistories) {
  const std::unique_ptr<LanguageModel> model = NewModel(kHybrid);
  std::map<std::string, Shape> shapes;
  for (const NamedTensor& t : model->NewSequence().Export()) shapes[t.name] = t.tensor.shape();
  EXPECT_EQ(shapes.at("cache.0.recurrent"), (Shape{4, 6, 8}));
  EXPECT_EQ(shapes.at("cache.0.conv_q"), (Shape{12, 3}));
  EXPECT_EQ(shapes.at("cache.0.conv_k"), (Shape{12, 3}));
  EXPECT_EQ(shapes.at("cache.0.conv_v"), (Shape{32, 3}));
  EXPECT_EQ(shapes.at("cache.1.recurrent"), (Shape{3, 5, 7}));
  EXPECT_EQ(shapes.at("cache.1.conv_v"), (Shape{21, 2}));
}

TEST(DeltaNetState, HasNoHistoriesWithoutAPast) {
  const std::unique_ptr<LanguageModel> model = NewModel(kOptions);
  std::map<std::string, Shape> shapes;
  for (const NamedTensor& t : model->NewSequence().Export()) shapes[t.name] = t.tensor.shape();
  for (const char* layer : {"cache.0.", "cache.1."}) {
    EXPECT_EQ(shapes.count(std::string(layer) + "recurrent"), 1u);
    EXPECT_EQ(shapes.count(std::string(layer) + "conv_q"), 0u);
  }
  EXPECT_EQ(shapes.at("cache.2.conv_v"), (Shape{20, 15}));
}

TEST(DeltaNetStateSize, IsConstant) {
  const absl::StatusOr<StackSpec> spec = ParseStackSpec(R"(
      vocab_size: 64 width: 32 layers: "m"
      mixers { name: "m" gated_delta_net { num_heads: 2 num_value_heads: 4 qk_head_dim: 6 v_head_dim: 8 } })",
                                                        "spec");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const int64_t bytes = (4 * 6 * 8 + 3 * (12 + 12 + 32)) * 4;
  EXPECT_EQ(SequenceStateSize(*spec, DType::kBF16, 0).bytes, bytes);
  EXPECT_EQ(SequenceStateSize(*spec, DType::kF32, 1000000).bytes, bytes);
  // A cache in its place would have keys and values of the width.
  EXPECT_EQ(FullCacheByteSize(*spec, DType::kF32, 10), 10 * 2 * 32 * 4);
}

}  // namespace
}  // namespace kvm
