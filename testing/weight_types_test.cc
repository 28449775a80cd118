// What rounding weights costs a model that has learned something: testing/data/small_lm, a model over bytes, on text
// that it was not trained on.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/model_file.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack/model_options.h"
#include "testing/text_loss.h"

namespace kvm {
namespace {

constexpr char kModel[] = "testing/data/small_lm";
constexpr int64_t kWindow = 257;
constexpr int64_t kTokens = 64 * kWindow;

// What PyTorch computed from the same bfloat16 weights on the same bytes (make_small_lm.py).
constexpr double kExpectedLoss = 1.41133;

double LossWith(WeightType type, int64_t* bytes) {
  const absl::StatusOr<OpenedModel> opened = OpenModel(kModel);
  EXPECT_TRUE(opened.ok()) << opened.status();
  ModelOptions options;
  options.weights = type;
  const auto model = LanguageModel::Create(opened->model.spec, *opened->model.weights, options);
  EXPECT_TRUE(model.ok()) << model.status();
  const absl::StatusOr<std::string> text = ReadFile("tools/demo/demo_text.txt");
  EXPECT_TRUE(text.ok()) << text.status();
  std::vector<int32_t> tokens = ByteTokens(*text);
  tokens.resize(kTokens);
  ExecutionContext context(2);
  const absl::StatusOr<double> loss = MeanLoss(**model, tokens, kWindow, context);
  EXPECT_TRUE(loss.ok()) << loss.status();
  *bytes = (*model)->WeightByteSize();
  return *loss;
}

TEST(WeightTypesTest, Int8CostsLessThanAThousandthOfPerplexity) {
  int64_t bytes_f32, bytes_bf16, bytes_int8;
  const double f32 = LossWith(WeightType::kF32, &bytes_f32);
  const double bf16 = LossWith(WeightType::kBF16, &bytes_bf16);
  const double int8 = LossWith(WeightType::kI8, &bytes_int8);
  EXPECT_NEAR(f32, kExpectedLoss, 2e-5);
  EXPECT_EQ(bf16, f32);  // the file has bfloat16
  EXPECT_NEAR(std::exp(int8 - bf16), 1, 0.001);
  EXPECT_NE(int8, bf16);
  EXPECT_EQ(bytes_f32, 2 * bytes_bf16);
  EXPECT_LT(bytes_int8, 0.55 * bytes_bf16);
}

}  // namespace
}  // namespace kvm
