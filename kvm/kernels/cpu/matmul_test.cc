#include "kvm/kernels/cpu/matmul.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/cpu/vectors/every_target.h"
#include "kvm/kernels/int8_panels.h"
#include "kvm/kernels/reference/matmul.h"

namespace kvm {
namespace {

std::vector<float> Random(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values) v = normal(generator);
  return values;
}

PackedMatrix Pack(const std::vector<float>& weight, int64_t outputs, int64_t inputs, DType storage) {
  return PackedMatrix::Pack({DType::kF32, {outputs, inputs}, weight.data()}, storage);
}

std::vector<float> Multiply(const std::vector<float>& x, const PackedMatrix& w, int64_t rows, int num_threads) {
  ThreadPool pool(num_threads, /*oversubscribe=*/true);
  std::vector<float> out(rows * w.outputs(), std::numeric_limits<float>::quiet_NaN());
  MatMul({x.data(), rows, w.inputs()}, w, {out.data(), rows, w.outputs()}, pool);
  return out;
}

// A sum of n products in order is off by at most n·epsilon·Σ|x·w| (to first order; epsilon = 2⁻²⁴ twice, for
// instruction sets that round the product as well).
void ExpectNearReference(const std::vector<float>& got, const std::vector<float>& x, const std::vector<float>& weight,
                         int64_t rows, int64_t inputs, int64_t outputs) {
  std::vector<float> abs_x(x), abs_weight(weight);
  for (float& v : abs_x) v = std::fabs(v);
  for (float& v : abs_weight) v = std::fabs(v);
  const std::vector<double> expected = reference::MatMul(x, weight, rows, inputs, outputs);
  const std::vector<double> magnitude = reference::MatMul(abs_x, abs_weight, rows, inputs, outputs);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], (inputs + 1) * 0x1p-23 * magnitude[i]) << "element " << i;
  }
}

TEST(MatMulTest, AgreesWithReferenceForOddSizesOnEveryTarget) {
  for (int64_t inputs : {1, 3, 17, 129}) {
    for (int64_t outputs : {1, 15, 16, 17, 33, 100}) {
      const std::vector<float> weight = Random(outputs * inputs, 1);
      const std::vector<float> x = Random(13 * inputs, 2);
      const PackedMatrix packed = Pack(weight, outputs, inputs, DType::kF32);
      ForEveryTarget([&] {
        for (int64_t rows = 1; rows <= 13; ++rows) {
          SCOPED_TRACE(::testing::Message() << rows << " x " << inputs << " x " << outputs);
          const std::vector<float> some(x.begin(), x.begin() + rows * inputs);
          ExpectNearReference(Multiply(some, packed, rows, 1), some, weight, rows, inputs, outputs);
        }
      });
    }
  }
}

// More inputs than one pass takes and more rows than one grain.
TEST(MatMulTest, AgreesWithReferenceWhenSumsAreContinued) {
  constexpr int64_t kRows = 200, kInputs = 900, kOutputs = 37;
  const std::vector<float> weight = Random(kOutputs * kInputs, 3);
  const std::vector<float> x = Random(kRows * kInputs, 4);
  const PackedMatrix packed = Pack(weight, kOutputs, kInputs, DType::kF32);
  ForEveryTarget([&] { ExpectNearReference(Multiply(x, packed, kRows, 2), x, weight, kRows, kInputs, kOutputs); });
}

TEST(MatMulTest, BFloat16StorageIsTheProductWithRoundedWeights) {
  constexpr int64_t kRows = 8, kInputs = 77, kOutputs = 43;
  const std::vector<float> weight = Random(kOutputs * kInputs, 5);
  std::vector<float> rounded(weight);
  for (float& v : rounded) v = ToFloat(ToBFloat16(v));
  const std::vector<float> x = Random(kRows * kInputs, 6);
  const PackedMatrix half = Pack(weight, kOutputs, kInputs, DType::kBF16);
  const PackedMatrix full = Pack(rounded, kOutputs, kInputs, DType::kF32);
  EXPECT_EQ(half.byte_size() * 2, full.byte_size());
  ForEveryTarget([&] {
    for (int64_t rows : {int64_t{1}, kRows}) {
      const std::vector<float> got = Multiply(x, half, rows, 1);
      EXPECT_EQ(got, Multiply(x, full, rows, 1));
      ExpectNearReference(got, {x.begin(), x.begin() + rows * kInputs}, rounded, rows, kInputs, kOutputs);
    }
  });
}

// Weights that int8 can hold: every block of 64 inputs has a scale that is a power of two and a number ±127.
std::vector<float> ExactInInt8(int64_t outputs, int64_t inputs) {
  std::mt19937 generator(12);
  std::vector<float> weight(outputs * inputs);
  for (int64_t o = 0; o < outputs; ++o) {
    float scale = 1;
    for (int64_t i = 0; i < inputs; ++i) {
      if (i % kScaleInputs == 0) scale = std::ldexp(1.0f, static_cast<int>(generator() % 9) - 4);
      const int number = i % kScaleInputs == 0 ? 127 : static_cast<int>(generator() % 255) - 127;
      weight[o * inputs + i] = scale * static_cast<float>(number);
    }
  }
  return weight;
}

TEST(MatMulTest, Int8StorageIsTheProductWithTheWeightsThatItHolds) {
  for (const int64_t inputs : {1, 63, 64, 65, 450}) {
    constexpr int64_t kRows = 14, kOutputs = 43;
    const std::vector<float> weight = ExactInInt8(kOutputs, inputs);
    const std::vector<float> x = Random(kRows * inputs, 13);
    const PackedMatrix int8 = Pack(weight, kOutputs, inputs, DType::kI8);
    const PackedMatrix full = Pack(weight, kOutputs, inputs, DType::kF32);
    EXPECT_LT(int8.byte_size(), inputs < 64 ? 2 * full.byte_size() : full.byte_size() / 3);
    ForEveryTarget([&] {
      for (int64_t rows = 1; rows <= kRows; ++rows) {
        SCOPED_TRACE(::testing::Message() << rows << " rows, " << inputs << " inputs");
        const std::vector<float> some(x.begin(), x.begin() + rows * inputs);
        const std::vector<float> got = Multiply(some, int8, rows, 1);
        EXPECT_EQ(got, Multiply(some, full, rows, 1));
        ExpectNearReference(got, some, weight, rows, inputs, kOutputs);
      }
    });
  }
}

// Any weights: the product is that with ŵ, off from the one with w by no more than the header says.
TEST(MatMulTest, Int8StorageOfAnyWeights) {
  constexpr int64_t kRows = 9, kInputs = 200, kOutputs = 50;
  const std::vector<float> weight = Random(kOutputs * kInputs, 14);
  const PackedMatrix int8 = Pack(weight, kOutputs, kInputs, DType::kI8);
  std::vector<float> held(weight.size());
  for (int64_t o = 0; o < kOutputs; ++o) CopyInt8Row(int8.view(), o, absl::MakeSpan(&held[o * kInputs], kInputs));
  for (size_t i = 0; i < held.size(); ++i) EXPECT_NEAR(held[i], weight[i], 5.0 / 254);
  const std::vector<float> x = Random(kRows * kInputs, 15);
  ForEveryTarget([&] {
    for (const int64_t rows : {int64_t{1}, kRows}) {
      const std::vector<float> got = Multiply(x, int8, rows, 2);
      EXPECT_EQ(got, Multiply(x, Pack(held, kOutputs, kInputs, DType::kF32), rows, 1));
    }
  });
}

TEST(MatMulTest, ARowHasTheSameBitsAloneInAnyBatchAndWithAnyThreads) {
  constexpr int64_t kRows = 205, kInputs = 1000, kOutputs = 100;
  const std::vector<float> x = Random(kRows * kInputs, 7);
  for (DType storage : {DType::kF32, DType::kBF16, DType::kI8}) {
    const PackedMatrix packed = Pack(Random(kOutputs * kInputs, 8), kOutputs, kInputs, storage);
    ForEveryTarget([&] {
      const std::vector<float> all = Multiply(x, packed, kRows, 1);
      for (int threads : {2, 3, 8}) EXPECT_EQ(Multiply(x, packed, kRows, threads), all) << threads << " threads";
      for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 50}) {
        const int64_t begin = kRows - 100;
        const std::vector<float> some(x.begin() + begin * kInputs, x.begin() + (begin + rows) * kInputs);
        const std::vector<float> expected(all.begin() + begin * kOutputs, all.begin() + (begin + rows) * kOutputs);
        for (int threads : {1, 3}) EXPECT_EQ(Multiply(some, packed, rows, threads), expected) << rows << " rows";
      }
    });
  }
}

TEST(MatMulTest, WritesNothingBesideTheOutput) {
  constexpr int64_t kRows = 7, kInputs = 5, kOutputs = 19, kStride = 24;
  const std::vector<float> x = Random(kRows * kStride, 9);
  const std::vector<float> weight = Random(kOutputs * kInputs, 10);
  const PackedMatrix packed = Pack(weight, kOutputs, kInputs, DType::kF32);
  std::vector<float> dense_x;
  for (int64_t r = 0; r < kRows; ++r) dense_x.insert(dense_x.end(), &x[r * kStride], &x[r * kStride] + kInputs);
  ThreadPool pool(1);
  ForEveryTarget([&] {
    std::vector<float> out(kRows * kStride, -7.0f);
    MatMul({x.data(), kRows, kInputs, kStride}, packed, {out.data(), kRows, kOutputs, kStride}, pool);
    std::vector<float> dense;
    for (int64_t r = 0; r < kRows; ++r) {
      dense.insert(dense.end(), &out[r * kStride], &out[r * kStride] + kOutputs);
      for (int64_t c = kOutputs; c < kStride; ++c) EXPECT_EQ(out[r * kStride + c], -7.0f) << r << ", " << c;
    }
    ExpectNearReference(dense, dense_x, weight, kRows, kInputs, kOutputs);
  });
}

TEST(MatMulTest, NoRowsAndNoInputs) {
  for (const DType storage : {DType::kF32, DType::kBF16, DType::kI8}) {
    const PackedMatrix packed = Pack(Random(20 * 3, 11), 20, 3, storage);
    EXPECT_TRUE(Multiply({}, packed, 0, 2).empty());
    const PackedMatrix empty = Pack({}, 20, 0, storage);
    EXPECT_EQ(Multiply({}, empty, 9, 1), std::vector<float>(180, 0.0f));
    EXPECT_EQ(Multiply({}, empty, 2, 1), std::vector<float>(40, 0.0f));
    EXPECT_EQ(Multiply({}, empty, 1, 1), std::vector<float>(20, 0.0f));
  }
}

TEST(PackedMatrixTest, PanelsHoldSixteenOutputsSideBySideAndZerosAfterTheLast) {
  // 17 outputs of 2 inputs as bfloat16: output o has the weights o and -o, all exact.
  std::vector<uint16_t> weight;
  for (int o = 0; o < 17; ++o) {
    weight.push_back(ToBFloat16(o).bits);
    weight.push_back(ToBFloat16(-o).bits);
  }
  const PackedMatrix packed = PackedMatrix::Pack({DType::kBF16, {17, 2}, weight.data()}, DType::kF32);
  EXPECT_EQ(packed.outputs(), 17);
  EXPECT_EQ(packed.inputs(), 2);
  EXPECT_EQ(packed.byte_size(), 2 * 2 * 16 * 4);
  const auto* first = static_cast<const float*>(packed.panel(0));
  const auto* second = static_cast<const float*>(packed.panel(1));
  for (int o = 0; o < 16; ++o) {
    EXPECT_EQ(first[o], o);
    EXPECT_EQ(first[16 + o], -o);
    EXPECT_EQ(second[o], o == 0 ? 16 : 0);
    EXPECT_EQ(second[16 + o], o == 0 ? -16 : 0);
  }
}

}  // namespace
}  // namespace kvm
