// Every call with every kind of argument that does not fit: it says what is wrong and ends the program, in all builds.

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/int8_panels.h"
#include "kvm/kernels/scratch.h"
#include "kvm/kernels/tensor.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {
namespace {

// A call that is wrong in one way, and how its message begins.
struct WrongCall {
  std::function<void()> call;
  const char* message;
};

void ExpectAllDie(const std::vector<WrongCall>& calls) {
  for (const WrongCall& wrong : calls) {
    EXPECT_DEATH(wrong.call(), testing::StartsWith(wrong.message)) << wrong.message;
  }
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(WrongCallsDeathTest, DType) {
  const DType none = static_cast<DType>(13);
  ExpectAllDie({
      {[&] { SizeOf(none); }, "SizeOf: dtype is 13, expected 0 to 12"},
      {[&] { Name(none); }, "Name: dtype is 13, expected 0 to 12"},
  });
}

TEST(WrongCallsDeathTest, Int8Panels) {
  std::vector<float> memory(1000), weights(6, 1.0f), out(3);
  const PanelsView panels = {DType::kI8, 2, 3, memory.data()};
  const auto make = [&](int64_t size, int64_t outputs, int64_t inputs) {
    MakeInt8Panel({weights.data(), static_cast<size_t>(size)}, outputs, inputs, memory.data());
  };
  const auto make_of = [&](float weight) {
    return [&, weight] {
      weights[4] = weight;
      make(6, 2, 3);
    };
  };
  const auto copy = [&](auto change, int64_t output) {
    return [&, change, output] {
      PanelsView wrong = panels;
      change(wrong);
      CopyInt8Row(wrong, output, absl::MakeSpan(out));
    };
  };
  ExpectAllDie({
      {[] { Int8Scale(kInfinity); }, "Int8Scale: expected largest to be finite and not negative"},
      {[] { Int8Scale(kNaN); }, "Int8Scale: expected largest to be finite and not negative"},
      {[] { Int8Scale(-1); }, "Int8Scale: expected largest to be finite and not negative"},
      {[] { ToInt8(128, 1); }, "ToInt8: expected w to be a number of at most 127 times scale"},
      {[] { ToInt8(kNaN, 1); }, "ToInt8: expected w to be a number of at most 127 times scale"},
      {[&] { make(6, -1, 3); }, "MakeInt8Panel: outputs is -1, expected 0 to 16"},
      {[&] { make(6, 17, 3); }, "MakeInt8Panel: outputs is 17, expected 0 to 16"},
      {[&] { make(6, 2, -3); }, "MakeInt8Panel: inputs is -3, expected at least 0"},
      {[&] { make(5, 2, 3); }, "MakeInt8Panel: rows.size() is 5, expected 6"},
      {[&] { MakeInt8Panel(weights, 2, 3, nullptr); }, "MakeInt8Panel: expected panel in memory"},
      {make_of(kNaN), "MakeInt8Panel: expected finite weights"},
      {make_of(-kInfinity), "MakeInt8Panel: expected finite weights"},
      {copy([](PanelsView& p) { p.storage = DType::kF32; }, 0), "CopyInt8Row: expected panels of I8"},
      {copy([](PanelsView& p) { p.data = nullptr; }, 0), "CopyInt8Row: expected panels to have data"},
      {copy([](PanelsView& p) { p.inputs = 4; }, 0), "CopyInt8Row: out.size() is 3, expected 4"},
      {copy([](PanelsView&) {}, 2), "CopyInt8Row: output is 2, expected 0 to 1"},
      {copy([](PanelsView&) {}, -1), "CopyInt8Row: output is -1, expected 0 to 1"},
  });
}

TEST(WrongCallsDeathTest, Tensor) {
  Tensor floats(DType::kF32, {2});
  const Tensor ints(DType::kI64, {2});
  Tensor halves(DType::kF16, {2});
  ExpectAllDie({
      {[] {
         NumElements(Shape{2, -1});
       },
       "NumElements: extent is -1, expected at least 0"},
      {[] {
         NumElements(Shape{int64_t{1} << 40, int64_t{1} << 40});
       },
       "NumElements: expected a number of elements"},
      {[] { Tensor(DType::kF32, {-1}); }, "NumElements: extent is -1, expected at least 0"},
      {[] {
         ReadFloats({DType::kF32, {3}, nullptr});
       },
       "ReadFloats: expected tensor to have data"},
      {[] {
         Tensor::FromFloats({2, 2}, {1, 2, 3});
       },
       "FromFloats: values.size() is 3, expected 4"},
      {[] {
         Tensor::FromInts({2}, {1, 2, 3});
       },
       "FromInts: values.size() is 3, expected 2"},
      {[&] { ints.floats(); }, "floats: expected a tensor of F32"},
      {[&] { halves.floats(); }, "floats: expected a tensor of F32"},
      {[&] { floats.ints(); }, "ints: expected a tensor of I64"},
  });
}

TEST(WrongCallsDeathTest, ScratchAndThreadPool) {
  Scratch scratch;
  ThreadPool pool(1);
  ExpectAllDie({
      {[&] { scratch.Matrix(-1, 2); }, "Matrix: rows is -1, expected at least 0"},
      {[&] { scratch.Matrix(2, -1); }, "Matrix: cols is -1, expected at least 0"},
      {[] { ThreadPool none(0); }, "ThreadPool: num_threads is 0, expected at least 1"},
      {[&] { pool.ParallelFor(-1, [](int64_t) {}); }, "ParallelFor: count is -1, expected at least 0"},
      {[&] { pool.ParallelForRanges(-1, 1, [](int64_t, int64_t) {}); }, "ParallelForRanges: count is -1, expected at"},
      {[&] { pool.ParallelForRanges(2, 0, [](int64_t, int64_t) {}); }, "ParallelForRanges: grain is 0, expected at"},
      {[] {
         ThreadPool two(2, /*oversubscribe=*/true);
         two.ParallelFor(2, [&](int64_t) { two.ParallelFor(2, [](int64_t) {}); });
       },
       "Run: expected no other loop on this pool at the same time"},
  });
}

}  // namespace
}  // namespace kvm
