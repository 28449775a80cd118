// Every call with every kind of argument that does not fit: it says what is wrong and ends the program, in all builds.

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/kernels/cpu/matmul.h"
#include "kvm/kernels/cpu/ovq_update.h"
#include "kvm/kernels/cpu/pointwise/elementwise.h"
#include "kvm/kernels/cpu/pointwise/norms.h"
#include "kvm/kernels/cpu/pointwise/rotary.h"
#include "kvm/kernels/cpu/pointwise/token_shift.h"
#include "kvm/kernels/cpu/slot_attention.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {
namespace {

using View = MatrixView<float>;

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

// Matrices [rows, cols] that share no memory with each other.
View Matrix(int64_t rows, int64_t cols) {
  static std::vector<float> memory(1 << 16);
  static int64_t used = 0;
  used += 100;
  return View(memory.data() + used - 100, rows, cols);
}
absl::Span<const float> Row(int64_t size) { return Matrix(1, size).row_span(0); }

ThreadPool& Pool() {
  static ThreadPool pool(1);
  return pool;
}

TEST(WrongCallsDeathTest, MatMul) {
  const PackedMatrix w = PackedMatrix::Pack({DType::kF32, {3, 5}, Matrix(3, 5).data}, DType::kF32);
  const View x = Matrix(4, 10).Cols(0, 5);
  ExpectAllDie({
      {[&] { MatMul(Matrix(4, 6), w, Matrix(4, 3), Pool()); }, "MatMul: x is [4, 6], expected [4, 5]"},
      {[&] { MatMul(Matrix(4, 5), w, Matrix(4, 4), Pool()); }, "MatMul: out is [4, 4], expected [4, 3]"},
      {[&] { MatMul(Matrix(4, 5), w, Matrix(3, 3), Pool()); }, "MatMul: out is [3, 3], expected [4, 3]"},
      {[&] { MatMul(View(nullptr, 4, 5), w, Matrix(4, 3), Pool()); }, "MatMul: x is [4, 5] at a null address"},
      {[&] {
         MatMul({x.data, 4, 5, 4}, w, Matrix(4, 3), Pool());
       },
       "MatMul: rows of x are 4 elements apart"},
      {[&] {
         MatMul(x, w, {x.data + 4, 4, 3, 10}, Pool());
       },
       "MatMul: expected out to share no memory with x"},
      {[&] { MatMul(Matrix(4, 5), PackedMatrix(), Matrix(4, 3), Pool()); }, "MatMul: x is [4, 5], expected [4, 0]"},
  });
}

TEST(WrongCallsDeathTest, PackedMatrix) {
  const float* const data = Matrix(3, 5).data;
  const PanelsView panels = {DType::kF32, 3, 5, data};
  const auto borrow = [&](auto change) {
    return [=] {
      PanelsView wrong = panels;
      change(wrong);
      PackedMatrix::Borrow(wrong);
    };
  };
  ExpectAllDie({
      {[&] {
         PackedMatrix::Pack({DType::kF32, {15}, data}, DType::kF32);
       },
       "Pack: dimensions of weight is 1, expected 2"},
      {[&] {
         PackedMatrix::Pack({DType::kF32, {-3, 5}, data}, DType::kF32);
       },
       "Pack: outputs is -3"},
      {[&] {
         PackedMatrix::Pack({DType::kF32, {3, -5}, data}, DType::kF32);
       },
       "Pack: inputs is -5"},
      {[&] {
         PackedMatrix::Pack({DType::kF32, {3, 5}, nullptr}, DType::kF32);
       },
       "Pack: expected weight to have data"},
      {[&] {
         PackedMatrix::Pack({DType::kF32, {3, 5}, data}, DType::kF16);
       },
       "Pack: expected storage to be F32, BF16"},
      {borrow([](PanelsView& p) { p.storage = DType::kI32; }), "Borrow: expected storage to be F32, BF16 or I8"},
      {borrow([](PanelsView& p) { p.outputs = -1; }), "Borrow: panels.outputs is -1, expected at least 0"},
      {borrow([](PanelsView& p) { p.inputs = -1; }), "Borrow: panels.inputs is -1, expected at least 0"},
      {borrow([](PanelsView& p) { p.data = nullptr; }), "Borrow: expected panels to have data"},
      {borrow([](PanelsView& p) { p.data = static_cast<const char*>(p.data) + 2; }), "Borrow: panels.data modulo"},
      {[&] { PackedMatrix::Borrow(panels).panel(1); }, "panel: p is 1, expected 0 to 0"},
      {[&] { PackedMatrix::Borrow(panels).panel(-1); }, "panel: p is -1, expected 0 to 0"},
  });
}

TEST(WrongCallsDeathTest, Norms) {
  const View x = Matrix(4, 6);
  const View shifted(x.data + 1, 3, 6);
  ExpectAllDie({
      {[&] { LayerNorm(x, Row(5), Row(6), 1, Matrix(4, 6)); }, "LayerNorm: weight.size() is 5, expected 6"},
      {[&] { LayerNorm(x, Row(6), Row(5), 1, Matrix(4, 6)); }, "LayerNorm: bias.size() is 5, expected 6"},
      {[&] { LayerNorm(x, Row(6), Row(6), 1, Matrix(3, 6)); }, "LayerNorm: out is [3, 6], expected [4, 6]"},
      {[&] { LayerNorm(View(nullptr, 4, 6), Row(6), Row(6), 1, x); }, "LayerNorm: x is [4, 6] at a null address"},
      {[&] { LayerNorm(x.Rows(0, 3), Row(6), Row(6), 1, shifted); },
       "LayerNorm: expected out to be x or apart from it"},
      {[&] { LayerNorm(View(), {}, {}, 1, View()); }, "LayerNorm: columns that are normalized together is 0"},
      {[&] { HeadLayerNorm(x, Row(4), Row(4), 1, x); }, "HeadLayerNorm: x.cols modulo the columns"},
      {[&] { HeadLayerNorm(x, Row(3), Row(2), 1, x); }, "HeadLayerNorm: bias.size() is 2, expected 3"},
      {[&] { HeadLayerNorm(x, {}, {}, 1, x); }, "HeadLayerNorm: columns that are normalized together is 0"},
      {[&] { HeadLayerNorm(x, Row(3), Row(3), 1, Matrix(4, 3)); }, "HeadLayerNorm: out is [4, 3], expected [4, 6]"},
      {[&] { GroupNorm(x, 0, Row(6), Row(6), 1, x); }, "GroupNorm: groups is 0, expected at least 1"},
      {[&] { GroupNorm(x, 4, Row(6), Row(6), 1, x); }, "GroupNorm: x.cols % groups is 2, expected 0"},
      {[&] { GroupNorm(x, 2, Row(3), Row(3), 1, x); }, "GroupNorm: weight.size() is 3, expected 6"},
      {[&] { HeadUnitLength(x, 0, 1, x); }, "HeadUnitLength: head_dim is 0, expected at least 1"},
      {[&] { HeadUnitLength(x, 4, 1, x); }, "HeadUnitLength: x.cols % head_dim is 2, expected 0"},
      {[&] { HeadUnitLength(x, 3, 1, Matrix(4, 5)); }, "HeadUnitLength: out is [4, 5], expected [4, 6]"},
      {[&] { HeadSoftUnitLength(x, 0, 1, x); }, "HeadSoftUnitLength: head_dim is 0, expected at least 1"},
      {[&] { HeadSoftUnitLength(x, 3, 1, x.Rows(0, 3)); }, "HeadSoftUnitLength: out is [3, 6], expected [4, 6]"},
      {[&] { HeadSoftUnitLength(x.Rows(0, 3), 3, 1, shifted); }, "HeadSoftUnitLength: expected out to be x or apart"},
  });
}

TEST(WrongCallsDeathTest, Elementwise) {
  const View y = Matrix(4, 6), none(nullptr, 4, 6), other = Matrix(4, 5), fits = Matrix(4, 6);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ExpectAllDie({
      {[&] { AddScaled(none, 1, fits); }, "AddScaled: y is [4, 6] at a null address"},
      {[&] { AddScaled(y, 1, other); }, "AddScaled: x is [4, 5], expected [4, 6]"},
      {[&] {
         AddScaled(y.Rows(0, 3), 1, {y.data + 1, 3, 6});
       },
       "AddScaled: expected y to be the other matrix or apart"},
      {[&] { Blend(none, 1, 1, fits); }, "Blend: y is [4, 6] at a null address"},
      {[&] { Blend(y, 1, 1, other); }, "Blend: x is [4, 5], expected [4, 6]"},
      {[&] { Multiply(none, fits); }, "Multiply: y is [4, 6] at a null address"},
      {[&] { Multiply(y, fits.Rows(0, 3)); }, "Multiply: x is [3, 6], expected [4, 6]"},
      {[&] { ReluSquared(none); }, "ReluSquared: y is [4, 6] at a null address"},
      {[&] { Tanh(none); }, "Tanh: y is [4, 6] at a null address"},
      {[&] { Sigmoid(none); }, "Sigmoid: y is [4, 6] at a null address"},
      {[&] { Silu(none); }, "Silu: y is [4, 6] at a null address"},
      {[&] { OnePlusElu(none); }, "OnePlusElu: y is [4, 6] at a null address"},
      {[&] { BiasedSigmoid(none, Row(6)); }, "BiasedSigmoid: y is [4, 6] at a null address"},
      {[&] { BiasedSigmoid(y, Row(5)); }, "BiasedSigmoid: bias.size() is 5, expected 6"},
      {[&] { SigmoidBlend(none, fits, Row(6), fits); }, "SigmoidBlend: y is [4, 6] at a null address"},
      {[&] { SigmoidBlend(y, other, Row(6), fits); }, "SigmoidBlend: target is [4, 5], expected [4, 6]"},
      {[&] { SigmoidBlend(y, fits, Row(7), fits); }, "SigmoidBlend: bias.size() is 7, expected 6"},
      {[&] { SigmoidBlend(y, fits, Row(6), other); }, "SigmoidBlend: gate is [4, 5], expected [4, 6]"},
      {[&] { SoftCap(none, 1); }, "SoftCap: y is [4, 6] at a null address"},
      {[&] { SoftCap(y, 0); }, "SoftCap: expected cap to be positive"},
      {[&] { SoftmaxWeights(none, 1, 1); }, "SoftmaxWeights: y is [4, 6] at a null address"},
      {[&] { SoftmaxWeights(y, 1, -1); }, "SoftmaxWeights: expected temperature to be finite and not negative"},
      {[&] { SoftmaxWeights(y, 1, nan); }, "SoftmaxWeights: expected temperature to be finite and not negative"},
      {[&] { Rwkv7Decay(none, Row(6)); }, "Rwkv7Decay: y is [4, 6] at a null address"},
      {[&] { Rwkv7Decay(y, Row(5)); }, "Rwkv7Decay: bias.size() is 5, expected 6"},
  });
}

TEST(WrongCallsDeathTest, Rotary) {
  const View x = Matrix(4, 12), table = Matrix(4, 3), other = Matrix(4, 3);
  ExpectAllDie({
      {[] { RotaryFrequencies(-2, 10); }, "RotaryFrequencies: rotary_dim is -2, expected at least 0"},
      {[] { RotaryFrequencies(3, 10); }, "RotaryFrequencies: rotary_dim % 2 is 1, expected 0"},
      {[] { RotaryFrequencies(4, 0); }, "RotaryFrequencies: expected theta to be positive"},
      {[&] { RotaryTable(Row(2), 0, DType::kF32, table, other); }, "RotaryTable: cos is [4, 3], expected [4, 2]"},
      {[&] { RotaryTable(Row(3), 0, DType::kF32, table, x); }, "RotaryTable: sin is [4, 12], expected [4, 3]"},
      {[&] { RotaryTable(Row(3), 0, DType::kF16, table, other); }, "RotaryTable: expected table to be F32 or BF16"},
      {[&] { RotaryTable(Row(3), 0, DType::kF32, table, table); }, "RotaryTable: expected cos to share no memory"},
      {[&] { ApplyRotary(x, 0, table, other); }, "ApplyRotary: head_dim is 0, expected at least 1"},
      {[&] { ApplyRotary(x, 5, table, other); }, "ApplyRotary: x.cols % head_dim is 2, expected 0"},
      {[&] { ApplyRotary(x, 4, table, other); }, "ApplyRotary: 2 * cos.cols is 6, expected at most 4"},
      {[&] { ApplyRotary(x, 6, table.Rows(0, 3), other); }, "ApplyRotary: cos is [3, 3], expected [4, 3]"},
      {[&] { ApplyRotary(x, 6, table, other.Cols(0, 2)); }, "ApplyRotary: sin is [4, 2], expected [4, 3]"},
      {[&] {
         ApplyRotary({nullptr, 4, 12}, 6, table, other);
       },
       "ApplyRotary: x is [4, 12] at a null address"},
  });
}

TEST(WrongCallsDeathTest, TokenShift) {
  const View x = Matrix(4, 6), out = Matrix(4, 6);
  ExpectAllDie({
      {[&] {
         TokenShift({nullptr, 4, 6}, Row(6), Row(6), out);
       },
       "TokenShift: x is [4, 6] at a null address"},
      {[&] { TokenShift(x, Row(5), Row(6), out); }, "TokenShift: previous.size() is 5, expected 6"},
      {[&] { TokenShift(x, Row(6), Row(5), out); }, "TokenShift: mix.size() is 5, expected 6"},
      {[&] { TokenShift(x, Row(6), Row(6), Matrix(3, 6)); }, "TokenShift: out is [3, 6], expected [4, 6]"},
      {[&] { TokenShift(x.Rows(0, 3), Row(6), Row(6), x.Rows(1, 3)); }, "TokenShift: expected out to be x or apart"},
      {[&] { TokenShift(x, out.row_span(3), Row(6), out); }, "TokenShift: expected previous not to lie in out"},
  });
}

TEST(WrongCallsDeathTest, SlotAttention) {
  KeyValueSegment segment;
  segment.keys = segment.values = Matrix(1, 99).data;
  segment.count = 2;
  AttentionHead head;
  head.queries = Matrix(4, 6);
  head.state_queries = Matrix(4, 6);
  head.out = Matrix(4, 5);
  const auto attend = [&](auto change) {
    return [=] {
      KeyValueSegment s = segment;
      AttentionHead h = head;
      h.segments = {&s, 1};
      change(h, s);
      SlotAttention({&h, 1}, Pool());
    };
  };
  using H = AttentionHead;
  using S = KeyValueSegment;
  ExpectAllDie({
      {attend([](H& h, S&) { h.queries.cols = 0; }), "SlotAttention: queries.cols is 0, expected at least 1"},
      {attend([](H& h, S&) { h.queries.data = nullptr; }), "SlotAttention: queries is [4, 6] at a null address"},
      {attend([](H& h, S&) { h.out.cols = 0; }), "SlotAttention: out.cols is 0, expected at least 1"},
      {attend([](H& h, S&) { h.out.rows = 3; }), "SlotAttention: out is [3, 5], expected [4, 5]"},
      {attend([](H& h, S&) { h.out.data = const_cast<float*>(h.queries.data); }),
       "SlotAttention: expected out to share"},
      {attend([](H& h, S&) { h.state_queries.rows = 2; }), "SlotAttention: state_queries is [2, 6], expected [4, 6]"},
      {attend([](H& h, S&) { h.state_queries.cols = 5; }), "SlotAttention: state_queries is [4, 5], expected [4, 6]"},
      {attend([](H& h, S&) { h.out.data = const_cast<float*>(h.state_queries.data); }),
       "SlotAttention: expected out to"},
      {attend([](H& h, S&) { h.span = -1; }), "SlotAttention: span is -1, expected at least 0"},
      {attend([](H&, S& s) { s.count = -1; }), "SlotAttention: segment.count is -1, expected at least 0"},
      {attend([](H&, S& s) { s.dtype = DType::kF64; }), "SlotAttention: expected segment.dtype to be F32, BF16 or I8"},
      {attend([](H&, S& s) { s.keys = nullptr; }), "SlotAttention: expected a segment with memory for keys and values"},
      {attend([](H&, S& s) { s.values = nullptr; }),
       "SlotAttention: expected a segment with memory for keys and values"},
      {attend([](H&, S& s) { s.dtype = DType::kI8; }), "SlotAttention: expected a segment of integers with scales"},
  });
}

TEST(WrongCallsDeathTest, OvqUpdate) {
  OvqDictionary dictionary;
  dictionary.count = 3;
  dictionary.capacity = 16;
  dictionary.dim = 2;
  dictionary.keys = Matrix(16, 2).data;
  dictionary.values = Matrix(16, 2).data;
  dictionary.counts = Matrix(1, 16).data;
  dictionary.log_counts = Matrix(1, 16).data;
  const View keys = Matrix(4, 2), values = Matrix(4, 2);
  const auto update = [&](View k, View v, int64_t num_centroids) {
    OvqUpdateOptions options;
    options.num_centroids = num_centroids;
    UpdateDictionary(k, v, options, dictionary);
  };
  const auto with = [&](auto change) {
    return [=] {
      OvqDictionary wrong = dictionary;
      change(wrong);
      UpdateDictionary(keys, values, {}, wrong);
    };
  };
  using D = OvqDictionary;
  ExpectAllDie({
      {[&] { update(keys.Rows(0, 0), values, 3); }, "UpdateDictionary: keys.rows is 0, expected at least 1"},
      {[&] { update(keys.Cols(0, 1), values, 3); }, "UpdateDictionary: keys is [4, 1], expected [4, 2]"},
      {[&] { update(keys, values.Rows(0, 3), 3); }, "UpdateDictionary: values is [3, 2], expected [4, 2]"},
      {[&] { update(keys, values, 17); }, "UpdateDictionary: options.num_centroids is 17, expected at most 16"},
      {with([](D& d) { d.dim = 0; }), "UpdateDictionary: dictionary.dim is 0, expected at least 1"},
      {with([](D& d) { d.count = 17; }), "UpdateDictionary: dictionary.count is 17, expected 0 to 16"},
      {with([](D& d) { d.capacity = 15; }), "UpdateDictionary: dictionary.capacity % kKeyPanel is 15, expected 0"},
      {with([](D& d) { d.count = d.capacity = 0; }),
       "UpdateDictionary: options.num_centroids is 1, expected at most 0"},
      {with([](D& d) { d.keys = nullptr; }), "UpdateDictionary: expected a dictionary with memory for keys and values"},
      {with([](D& d) { d.log_counts = nullptr; }), "UpdateDictionary: expected a dictionary with memory for counts"},
      {[] {
         DictionarySize({0, false}, 1);
       },
       "DictionarySize: schedule.max_centroids is 0, expected at least 1"},
      {[] {
         DictionarySize({4, false}, -1);
       },
       "DictionarySize: tokens is -1, expected at least 0"},
  });
}

}  // namespace
}  // namespace kvm
