// NaN in any input of products, norms, embeddings, shifts and element by element operations.

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/matmul.h"
#include "kvm/kernels/cpu/pointwise/elementwise.h"
#include "kvm/kernels/cpu/pointwise/norms.h"
#include "kvm/kernels/cpu/pointwise/rotary.h"
#include "kvm/kernels/cpu/pointwise/token_shift.h"
#include "kvm/kernels/cpu/vectors/poisoned_inputs_testing.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kCols = 20;

using Inputs = std::vector<std::vector<float>>;
using View = MatrixView<float>;

View Rows(std::vector<float>& x, int64_t cols = kCols) {
  return {x.data(), static_cast<int64_t>(x.size()) / cols, cols};
}

// A kernel that changes its first input in place.
template <typename Kernel>
PoisonedKernel InPlace(const char* name, std::vector<PoisonedInput> inputs, Kernel kernel) {
  return {name, std::move(inputs), kRows, [kernel](Inputs in) {
            kernel(in);
            return in[0];
          }};
}

TEST(PoisonedInputsTest, MatMul) {
  for (const DType storage : {DType::kF32, DType::kBF16}) {
    for (const int64_t rows : {int64_t{1}, kRows, int64_t{13}}) {
      ExpectNanComesOut(
          {"MatMul", {{"x", rows, kCols, SeenIn::kRow}, {"w", 17, kCols, SeenIn::kAll}}, rows, [=](Inputs in) {
             ThreadPool pool(1);
             std::vector<float> out(rows * 17);
             const PackedMatrix w = PackedMatrix::Pack({DType::kF32, {17, kCols}, in[1].data()}, storage);
             MatMul(Rows(in[0]), w, Rows(out, 17), pool);
             return out;
           }});
    }
  }
}

TEST(PoisonedInputsTest, Norms) {
  const PoisonedInput x = {"x", kRows, kCols, SeenIn::kRow};
  const PoisonedInput weight = {"weight", 1, kCols, SeenIn::kAll}, bias = {"bias", 1, kCols, SeenIn::kAll};
  const PoisonedInput head_weight = {"weight", 1, 10, SeenIn::kAll}, head_bias = {"bias", 1, 10, SeenIn::kAll};
  ExpectNanComesOut(InPlace("LayerNorm", {x, weight, bias},
                            [](Inputs& in) { LayerNorm(Rows(in[0]), in[1], in[2], 1e-5f, Rows(in[0])); }));
  ExpectNanComesOut(InPlace("HeadLayerNorm", {x, head_weight, head_bias},
                            [](Inputs& in) { HeadLayerNorm(Rows(in[0]), in[1], in[2], 1e-5f, Rows(in[0])); }));
  ExpectNanComesOut(InPlace("GroupNorm", {x, weight, bias},
                            [](Inputs& in) { GroupNorm(Rows(in[0]), 4, in[1], in[2], 1e-5f, Rows(in[0])); }));
  ExpectNanComesOut(InPlace("HeadUnitLength", {x}, [](Inputs& in) { HeadUnitLength(Rows(in[0]), 5, 1, Rows(in[0])); }));
  ExpectNanComesOut(
      InPlace("HeadSoftUnitLength", {x}, [](Inputs& in) { HeadSoftUnitLength(Rows(in[0]), 5, 1, Rows(in[0])); }));
}

TEST(PoisonedInputsTest, Elementwise) {
  const PoisonedInput y = {"y", kRows, kCols, SeenIn::kRow}, x = {"x", kRows, kCols, SeenIn::kRow};
  const PoisonedInput gate = {"gate", kRows, kCols, SeenIn::kRow}, bias = {"bias", 1, kCols, SeenIn::kAll};
  ExpectNanComesOut(InPlace("AddScaled", {y, x}, [](Inputs& in) { AddScaled(Rows(in[0]), 2, Rows(in[1])); }));
  ExpectNanComesOut(InPlace("Blend", {y, x}, [](Inputs& in) { Blend(Rows(in[0]), 2, 3, Rows(in[1])); }));
  ExpectNanComesOut(InPlace("Multiply", {y, x}, [](Inputs& in) { Multiply(Rows(in[0]), Rows(in[1])); }));
  ExpectNanComesOut(InPlace("ReluSquared", {y}, [](Inputs& in) { ReluSquared(Rows(in[0])); }));
  ExpectNanComesOut(InPlace("Tanh", {y}, [](Inputs& in) { Tanh(Rows(in[0])); }));
  ExpectNanComesOut(InPlace("Sigmoid", {y}, [](Inputs& in) { Sigmoid(Rows(in[0])); }));
  ExpectNanComesOut(InPlace("Silu", {y}, [](Inputs& in) { Silu(Rows(in[0])); }));
  ExpectNanComesOut(InPlace("OnePlusElu", {y}, [](Inputs& in) { OnePlusElu(Rows(in[0])); }));
  ExpectNanComesOut(InPlace("SoftCap", {y}, [](Inputs& in) { SoftCap(Rows(in[0]), 2); }));
  ExpectNanComesOut(InPlace("SoftmaxWeights", {y}, [](Inputs& in) { SoftmaxWeights(Rows(in[0]), 1, 2); }));
  ExpectNanComesOut(InPlace("BiasedSigmoid", {y, bias}, [](Inputs& in) { BiasedSigmoid(Rows(in[0]), in[1]); }));
  ExpectNanComesOut(InPlace("Rwkv7Decay", {y, bias}, [](Inputs& in) { Rwkv7Decay(Rows(in[0]), in[1]); }));
  ExpectNanComesOut(InPlace("SigmoidBlend", {y, x, bias, gate},
                            [](Inputs& in) { SigmoidBlend(Rows(in[0]), Rows(in[1]), in[2], Rows(in[3])); }));
}

TEST(PoisonedInputsTest, RotaryAndTokenShift) {
  const PoisonedInput x = {"x", kRows, kCols, SeenIn::kRow};
  const PoisonedInput cos = {"cos", kRows, 5, SeenIn::kRow}, sin = {"sin", kRows, 5, SeenIn::kRow};
  ExpectNanComesOut(InPlace("ApplyRotary", {x, cos, sin},
                            [](Inputs& in) { ApplyRotary(Rows(in[0]), 10, Rows(in[1], 5), Rows(in[2], 5)); }));
  const PoisonedInput shifted = {"x", kRows, kCols, SeenIn::kLater};
  const PoisonedInput previous = {"previous", 1, kCols, SeenIn::kRow}, mix = {"mix", 1, kCols, SeenIn::kAll};
  ExpectNanComesOut(InPlace("TokenShift", {shifted, previous, mix},
                            [](Inputs& in) { TokenShift(Rows(in[0]), in[1], in[2], Rows(in[0])); }));
}

// ∞ − ∞ at run time, with finite inputs.
TEST(PoisonedInputsTest, OverflowComesOutToo) {
  ForEveryTarget([] {
    std::vector<float> x(kCols, 1.0f), w(kCols, 0.0f), out(1);
    x[3] = x[4] = 1e30f;
    w[3] = 1e30f;
    w[4] = -1e30f;
    ThreadPool pool(1);
    MatMul(Rows(x), PackedMatrix::Pack({DType::kF32, {1, kCols}, w.data()}, DType::kF32), Rows(out, 1), pool);
    EXPECT_FALSE(std::isfinite(out[0]));
    std::vector<float> row(kCols, 3e38f);  // whose sum is infinite
    const std::vector<float> ones(kCols, 1.0f);
    LayerNorm(Rows(row), ones, ones, 1e-5f, Rows(row));
    for (const float y : row) EXPECT_FALSE(std::isfinite(y));
  });
}

}  // namespace
}  // namespace kvm
