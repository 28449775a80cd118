// Every call around recurrences with every kind of argument that does not fit: it says what is wrong and ends the
// program, in all builds.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/kernels/cpu/recurrence/chunked_delta.h"
#include "kvm/kernels/cpu/recurrence/delta_gates.h"
#include "kvm/kernels/cpu/recurrence/delta_rule.h"
#include "kvm/kernels/cpu/recurrence/short_convolution.h"
#include "kvm/kernels/cpu/recurrence/wkv7.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {
namespace {

using View = MatrixView<float>;

// A call that is wrong in one way, and how its message begins.
struct WrongCall {
  std::function<void()> call;
  std::string message;
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

TEST(RecurrenceCallsDeathTest, Wkv7InBothForms) {
  using H = Wkv7Head;
  const auto m = [] { return Matrix(5, 4); };
  const H right = {m(), m(), m(), m(), m(), m(), m().data, m()};
  for (const bool chunked : {false, true}) {
    const auto run = [=](auto change) {
      return [=] {
        H head = right;
        change(head);
        chunked ? ChunkedWkv7({&head, 1}, Pool()) : Wkv7({&head, 1}, Pool());
      };
    };
    const std::string name = chunked ? "ChunkedWkv7: " : "Wkv7: ";
    ExpectAllDie({
        {run([](H& h) { h.r.cols = 0; }), name + "r.cols is 0, expected at least 1"},
        {run([](H& h) { h.r.data = nullptr; }), name + "r is [5, 4] at a null address"},
        {run([](H& h) { h.w.rows = 4; }), name + "w is [4, 4], expected [5, 4]"},
        {run([](H& h) { h.k.cols = 3; }), name + "k is [5, 3], expected [5, 4]"},
        {run([](H& h) { h.v.rows = 6; }), name + "v is [6, 4], expected [5, 4]"},
        {run([](H& h) { h.kappa.stride = 3; }), name + "rows of kappa are 3 elements apart"},
        {run([](H& h) { h.a.data = nullptr; }), name + "a is [5, 4] at a null address"},
        {run([](H& h) { h.out.rows = 4; }), name + "out is [4, 4], expected [5, 4]"},
        {run([](H& h) { h.state = nullptr; }), name + "expected state in memory"},
        {run([](H& h) { h.out.data = const_cast<float*>(h.v.data); }), name + "expected out to share no memory"},
    });
  }
}

TEST(RecurrenceCallsDeathTest, DeltaRuleInBothForms) {
  using H = DeltaRuleHead;
  const H right = {Matrix(5, 4), Matrix(5, 4),      Matrix(5, 3), Matrix(5, 4),
                   Matrix(5, 1), Matrix(4, 3).data, Matrix(5, 3)};
  for (const bool chunked : {false, true}) {
    const auto run = [=](auto change) {
      return [=] {
        H head = right;
        change(head);
        chunked ? ChunkedDeltaRule({&head, 1}, Pool()) : DeltaRule({&head, 1}, Pool());
      };
    };
    const std::string name = chunked ? "ChunkedDeltaRule: " : "DeltaRule: ";
    ExpectAllDie({
        {run([](H& h) { h.k.cols = 0; }), name + "k.cols is 0, expected at least 1"},
        {run([](H& h) { h.v.cols = 0; }), name + "v.cols is 0, expected at least 1"},
        {run([](H& h) { h.k.data = nullptr; }), name + "k is [5, 4] at a null address"},
        {run([](H& h) { h.q.cols = 3; }), name + "q is [5, 3], expected [5, 4]"},
        {run([](H& h) { h.v.rows = 4; }), name + "v is [4, 3], expected [5, 3]"},
        {run([](H& h) { h.decay.cols = 2; }), name + "decay is [5, 2], expected [5, 4]"},
        {run([](H& h) { h.decay.rows = 4; }), name + "decay is [4, 4], expected [5, 4]"},
        {run([](H& h) { h.beta.cols = 2; }), name + "beta is [5, 2], expected [5, 1]"},
        {run([](H& h) { h.out.cols = 4; }), name + "out is [5, 4], expected [5, 3]"},
        {run([](H& h) { h.state = nullptr; }), name + "expected state in memory"},
        {run([](H& h) { h.out.data = const_cast<float*>(h.q.data); }), name + "expected out to share no memory"},
    });
  }
}

TEST(RecurrenceCallsDeathTest, Wkv7KeysAndGates) {
  const View k = Matrix(3, 6), a = Matrix(3, 6), kappa = Matrix(3, 6), other = Matrix(3, 5);
  const auto gate = [&](View out, View r, View key, View v, int64_t r_k, int64_t head_dim, View g) {
    Wkv7BonusAndGate(out, r, key, v, Row(r_k), head_dim, g);
  };
  const auto keys = [&](View a_or_other, int64_t k_k, int64_t k_a, int64_t head_dim, View out) {
    Wkv7Keys(k, a_or_other, Row(k_k), Row(k_a), head_dim, out);
  };
  const auto m = [] { return Matrix(3, 6); };
  ExpectAllDie({
      {[&] {
         Wkv7Keys({nullptr, 3, 6}, a, Row(6), Row(6), 3, kappa);
       },
       "Wkv7Keys: k is [3, 6] at a null address"},
      {[&] { keys(a, 6, 6, 0, kappa); }, "Wkv7Keys: head_dim is 0, expected at least 1"},
      {[&] { keys(a, 6, 6, 4, kappa); }, "Wkv7Keys: columns % head_dim is 2, expected 0"},
      {[&] { keys(other, 6, 6, 3, kappa); }, "Wkv7Keys: a is [3, 5], expected [3, 6]"},
      {[&] { keys(a, 5, 6, 3, kappa); }, "Wkv7Keys: k_k.size() is 5, expected 6"},
      {[&] { keys(a, 6, 7, 3, kappa); }, "Wkv7Keys: k_a.size() is 7, expected 6"},
      {[&] { keys(a, 6, 6, 3, other); }, "Wkv7Keys: kappa is [3, 5], expected [3, 6]"},
      {[&] { keys(a, 6, 6, 3, k); }, "Wkv7Keys: expected kappa to share no memory with k"},
      {[&] {
         gate({nullptr, 3, 6}, m(), m(), m(), 6, 3, m());
       },
       "Wkv7BonusAndGate: out is [3, 6] at a null address"},
      {[&] { gate(m(), other, m(), m(), 6, 3, m()); }, "Wkv7BonusAndGate: r is [3, 5], expected [3, 6]"},
      {[&] { gate(m(), m(), other, m(), 6, 3, m()); }, "Wkv7BonusAndGate: k is [3, 5], expected [3, 6]"},
      {[&] { gate(m(), m(), m(), other, 6, 3, m()); }, "Wkv7BonusAndGate: v is [3, 5], expected [3, 6]"},
      {[&] { gate(m(), m(), m(), m(), 5, 3, m()); }, "Wkv7BonusAndGate: r_k.size() is 5, expected 6"},
      {[&] { gate(m(), m(), m(), m(), 6, 4, m()); }, "Wkv7BonusAndGate: columns % head_dim is 2, expected 0"},
      {[&] { gate(m(), m(), m(), m(), 6, 3, other); }, "Wkv7BonusAndGate: g is [3, 5], expected [3, 6]"},
      {[&] { gate(k, k, m(), m(), 6, 3, m()); }, "Wkv7BonusAndGate: expected out to share no memory"},
  });
}

TEST(RecurrenceCallsDeathTest, DeltaGates) {
  const View x = Matrix(3, 6), none(nullptr, 3, 6);
  ExpectAllDie({
      {[&] { DeltaUnitLength(none, 3, 1); }, "DeltaUnitLength: x is [3, 6] at a null address"},
      {[&] { DeltaUnitLength(x, 0, 1); }, "DeltaUnitLength: head_dim is 0, expected at least 1"},
      {[&] { DeltaUnitLength(x, 4, 1); }, "DeltaUnitLength: x.cols % head_dim is 2, expected 0"},
      {[&] { ScaledSigmoid(none, 1); }, "ScaledSigmoid: y is [3, 6] at a null address"},
      {[&] { SoftplusDecay(none, Row(6), Row(6)); }, "SoftplusDecay: y is [3, 6] at a null address"},
      {[&] { SoftplusDecay(x, Row(5), Row(6)); }, "SoftplusDecay: rate.size() is 5, expected 6"},
      {[&] { SoftplusDecay(x, Row(6), Row(5)); }, "SoftplusDecay: bias.size() is 5, expected 6"},
      {[&] { BoundedDecay(none, Row(6), Row(6), -1); }, "BoundedDecay: y is [3, 6] at a null address"},
      {[&] { BoundedDecay(x, Row(5), Row(6), -1); }, "BoundedDecay: rate.size() is 5, expected 6"},
      {[&] { BoundedDecay(x, Row(6), Row(5), -1); }, "BoundedDecay: bias.size() is 5, expected 6"},
      {[&] { BoundedDecay(x, Row(6), Row(6), 0); }, "BoundedDecay: expected lower_bound to be negative"},
      {[&] { GatedRmsNorm(none, Row(3), 1, {}); }, "GatedRmsNorm: x is [3, 6] at a null address"},
      {[&] { GatedRmsNorm(x, {}, 1, {}); }, "GatedRmsNorm: weight.size() is 0, expected at least 1"},
      {[&] { GatedRmsNorm(x, Row(4), 1, {}); }, "GatedRmsNorm: x.cols % weight.size() is 2, expected 0"},
      {[&] { GatedRmsNorm(x, Row(3), 1, Matrix(3, 5)); }, "GatedRmsNorm: gate is [3, 5], expected [3, 6]"},
  });
}

TEST(RecurrenceCallsDeathTest, ShortConvolution) {
  const View u = Matrix(5, 4), history = Matrix(2, 4), taps = Matrix(3, 4), out = Matrix(3, 4);
  const auto run = [&](int64_t begin, int64_t count, View before, View of_taps, int64_t bias, View to) {
    ShortConvolution(u, begin, count, before, {of_taps, Row(bias)}, to);
  };
  ExpectAllDie({
      {[&] {
         ShortConvolution({nullptr, 5, 4}, 0, 3, history, {taps, {}}, out);
       },
       "ShortConvolution: u is [5, 4] at a"},
      {[&] { run(-1, 3, history, taps, 4, out); }, "ShortConvolution: begin is -1, expected 0 to 5"},
      {[&] { run(3, 3, history, taps, 4, out); }, "ShortConvolution: count is 3, expected 0 to 2"},
      {[&] { run(0, 3, history, taps.Rows(0, 0), 4, out); },
       "ShortConvolution: taps.taps.rows is 0, expected at least"},
      {[&] { run(0, 3, history, taps.Cols(0, 3), 4, out); }, "ShortConvolution: taps.taps is [3, 3], expected [3, 4]"},
      {[&] { run(0, 3, history, taps, 3, out); }, "ShortConvolution: taps.bias.size() is 3, expected 4"},
      {[&] { run(0, 3, history.Rows(0, 1), taps, 4, out); }, "ShortConvolution: history.rows is 1, expected 2"},
      {[&] { run(0, 3, history.Cols(0, 3), taps, 4, out); }, "ShortConvolution: history is [2, 3], expected [2, 4]"},
      {[&] { run(0, 2, history, taps, 4, out); }, "ShortConvolution: out is [3, 4], expected [2, 4]"},
      {[&] { run(0, 3, history, taps, 4, u.Rows(0, 3)); }, "ShortConvolution: expected out to share no memory with u"},
      {[&] { run(0, 2, history, taps, 4, history); }, "ShortConvolution: expected out to share no memory with history"},
      {[&] {
         AdvanceHistory({nullptr, 5, 4}, history);
       },
       "AdvanceHistory: u is [5, 4] at a null address"},
      {[&] { AdvanceHistory(u, history.Cols(0, 3)); }, "AdvanceHistory: history is [2, 3], expected [2, 4]"},
      {[&] { AdvanceHistory(u, u.Rows(0, 2)); }, "AdvanceHistory: expected history to share no memory with u"},
  });
}

}  // namespace
}  // namespace kvm
