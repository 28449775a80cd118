// What states of delta rule layers hold. Their promises are kept by //testing:conformance_test, and numbers are checked
// against published ones by //testing:golden_layers_test.

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/kernels/tensor.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/model/engine/state_size.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/initializer.h"

namespace kvm {
namespace {

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

TEST(DeltaNetState, ExportsMatricesAndHistories) {
  const std::unique_ptr<LanguageModel> model = NewModel(kHybrid);
  std::map<std::string, Shape> shapes;
  const std::vector<NamedTensor> tensors = model->NewSequence().Export().value();
  for (const NamedTensor& t : tensors) shapes[t.name] = t.tensor.shape();
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
  const std::vector<NamedTensor> tensors = model->NewSequence().Export().value();
  for (const NamedTensor& t : tensors) shapes[t.name] = t.tensor.shape();
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
