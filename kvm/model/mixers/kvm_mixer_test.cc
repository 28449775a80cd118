#include "kvm/model/mixers/kvm_mixer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/reference/slot_attention.h"
#include "kvm/model/mixers/kvm_mixer_testing.h"

namespace kvm {
namespace {

using Vector = std::vector<double>;

constexpr char kNeverMerges[] = "budget { growth: POWER_LAW factor: 1 exponent: 1 max_chunks: 1000000 } ";
constexpr char kGrows[] = "budget { growth: POWER_LAW factor: 2 min_rows: 8 max_chunks: 10000 } ";

// The layer's mathematics for a state that keeps every token, in double precision and with nothing but the weights.
class DenseAttention {
 public:
  explicit DenseAttention(const KvmLayer& layer)
      : weights_(layer.weights), separate_rotary_(layer.spec.kvm().separate_rotary()) {}

  Vector Outputs(const std::vector<float>& x) const {
    const int64_t heads = 4, kv_heads = 2, qk_dim = 8, v_dim = 6, rotary = 4, chunk = 8, window = 16;
    std::vector<Vector> q, k, v;
    for (int64_t t = 0; t < kTestTokens; ++t) {
      const Vector row(x.begin() + t * kTestWidth, x.begin() + (t + 1) * kTestWidth);
      q.push_back(Heads(Multiply("c_q.weight", row), qk_dim, "ln_q", t));
      k.push_back(Heads(Multiply("c_k.weight", row), qk_dim, "ln_k", t));
      v.push_back(Multiply("c_v.weight", row));
    }
    Vector out;
    for (int64_t t = 0; t < kTestTokens; ++t) {
      const int64_t length = t + 1;
      const int64_t begin = std::max<int64_t>(0, (length + chunk - 1) / chunk * chunk - window);
      Vector attended;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t kv = h / (heads / kv_heads);
        std::vector<reference::AttentionKey> keys;
        Vector query = Slice(q[t], h, qk_dim);
        for (int64_t s = 0; s <= t; ++s) {
          reference::AttentionKey key;
          key.key = Slice(k[s], kv, qk_dim);
          key.value = Slice(v[s], kv, v_dim);
          key.position = s;
          // The scale of both kinds of key multiplies the key here, so that their queries may differ.
          Scale(Weights(s < begin ? "state_head_temp" : "front_head_temp")[h] / std::sqrt(8.0), &key.key);
          if (s < begin) {
            key.key = Slice(k[s], kv, qk_dim);
            std::fill_n(key.key.begin(), rotary, 0.0);
            key.key = Normalize(Normalize(key.key, "ln_s_k"), "ln_s_k");
            Scale(Weights("state_head_temp")[h] / std::sqrt(8.0), &key.key);
            if (separate_rotary_) std::fill_n(key.key.begin(), rotary, 0.0);
          }
          keys.push_back(key);
        }
        const Vector head = reference::SlotAttention(query, t, keys, kTestTokens, 1, 1);
        attended.insert(attended.end(), head.begin(), head.end());
      }
      const Vector row = Multiply("c_proj.weight", attended);
      out.insert(out.end(), row.begin(), row.end());
    }
    return out;
  }

 private:
  Vector Weights(const std::string& name) const {
    const std::vector<float> floats = ReadFloats(*weights_.Find(name));
    return Vector(floats.begin(), floats.end());
  }

  static Vector Slice(const Vector& x, int64_t head, int64_t dim) {
    return Vector(x.begin() + head * dim, x.begin() + (head + 1) * dim);
  }
  static void Scale(double factor, Vector* x) {
    for (double& e : *x) e *= factor;
  }

  Vector Multiply(const std::string& name, const Vector& x) const {
    const Vector matrix = Weights(name);
    Vector y(matrix.size() / x.size());
    for (size_t o = 0; o < y.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i) y[o] += matrix[o * x.size() + i] * x[i];
    }
    return y;
  }

  Vector Normalize(const Vector& x, const std::string& norm) const {
    const Vector weight = Weights(norm + ".weight"), bias = Weights(norm + ".bias");
    const double n = static_cast<double>(x.size());
    double mean = 0, variance = 0;
    for (double e : x) mean += e / n;
    for (double e : x) variance += (e - mean) * (e - mean) / n;
    Vector y(x.size());
    for (size_t c = 0; c < x.size(); ++c) y[c] = (x[c] - mean) / std::sqrt(variance + 1e-5) * weight[c] + bias[c];
    return y;
  }

  // Every head normalized and its first two pairs of channels turned: by the position and by position/10000.
  Vector Heads(const Vector& x, int64_t dim, const std::string& norm, int64_t position) const {
    Vector all;
    for (int64_t h = 0; h < static_cast<int64_t>(x.size()) / dim; ++h) {
      Vector head = Normalize(Slice(x, h, dim), norm);
      for (int64_t p = 0; p < 2; ++p) {
        const double angle = static_cast<double>(position) * (p == 0 ? 1 : 1e-4);
        const double a = head[2 * p], b = head[2 * p + 1];
        head[2 * p] = std::cos(angle) * a + std::sin(angle) * b;
        head[2 * p + 1] = std::cos(angle) * b - std::sin(angle) * a;
      }
      all.insert(all.end(), head.begin(), head.end());
    }
    return all;
  }

  const RandomMixerWeights& weights_;
  bool separate_rotary_;
};

// A budget that never merges makes KVM dense attention, over state keys normalized twice and values at their own norm.
TEST(KvmMixerTest, KeepingEveryTokenIsDenseAttention) {
  for (const std::string more : {"", "separate_rotary: true"}) {
    const KvmLayer layer(std::string(kTestHeads) + kNeverMerges + more);
    const KvmOutcome outcome = layer.Run();
    EXPECT_EQ(outcome.num_rows, 5 * kTestChunk);
    const Vector expected = DenseAttention(layer).Outputs(TestInputs());
    double largest = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(outcome.out[i], expected[i], 2e-5) << more << " token " << i / kTestWidth;
      largest = std::max(largest, std::abs(expected[i]));
    }
    EXPECT_GT(largest, 0.5);
  }
}

TEST(KvmMixerTest, SeveralSinksTakeNothing) {
  for (int64_t num_sinks : {0, 1, 3, 7}) {
    SCOPED_TRACE(num_sinks);
    const std::string text = std::string(kTestHeads) + "num_sinks: " + std::to_string(num_sinks) + " ";
    // The state of a window that never closes holds the first chunk as it came.
    const KvmOutcome early = KvmLayer(text + "window_chunks: 99 budget { min_rows: 8 }").Run();
    const KvmOutcome late = KvmLayer(text + "budget { min_rows: 8 }").Run();
    ASSERT_EQ(late.num_rows, kTestChunk);
    for (const std::string name : {"kvm_s_k", "kvm_s_v"}) {
      const Tensor &before = early.Get(name), &after = late.Get(name);
      const int64_t dim = before.shape()[2];
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t row = 0; row < kTestChunk; ++row) {
          const auto at = [&](const Tensor& t) { return t.floats().subspan((h * kTestChunk + row) * dim, dim); };
          if (row < num_sinks) {
            EXPECT_EQ(at(after), at(before)) << name << row;
          } else if (num_sinks == 7) {
            EXPECT_NE(at(after), at(before)) << name << row;  // the only row that is left takes all
          }
        }
      }
      EXPECT_NE(before.floats(), after.floats());
    }
  }
}

// Every option and what it is at its limit.
struct Limit {
  std::string options, plain;
};

TEST(KvmMixerTest, OptionsAtTheirLimitsChangeNoBit) {
  const std::string heads = kTestHeads, grows = kGrows;
  const std::string no_rotary =
      "projections { num_heads: 4 num_kv_heads: 2 qk_head_dim: 8 v_head_dim: 6 rotary_dim: 0 value_residual: NONE } ";
  const std::string growth = "growth: POWER_LAW factor: 2 min_rows: 8 max_chunks: 10000 ";
  const std::vector<Limit> limits = {
      {heads + "budget { " + growth + "append_below: inf }", heads + grows},
      {heads + "budget { " + growth + "append_below: 1e30 }", heads + grows},
      {heads + "budget { " + growth + "append_below: -inf }", heads + "budget { min_rows: 8 }"},
      {heads + "second_merge: 0 merge_decay: 1 " + grows, heads + grows},
      {heads + "head_budgets { " + growth + "} head_budgets { " + growth + "}", heads + grows},
      {no_rotary + "separate_rotary: true " + grows, no_rotary + grows},
  };
  for (const Limit& limit : limits) {
    SCOPED_TRACE(limit.options);
    ExpectSameBits(KvmLayer(limit.options).Run(), KvmLayer(limit.plain).Run());
  }
}

// Options that do something, with any state.
std::vector<std::string> Options() {
  const std::string heads = kTestHeads, grows = kGrows;
  return {
      heads + "budget { growth: POWER_LAW factor: 4 max_chunks: 10000 append_below: 4 }",
      heads + "second_merge: 0.5 " + grows,
      heads + "merge_decay: 0.75 " + grows,
      heads + "separate_rotary: true " + grows,
      heads + "head_budgets { min_rows: 8 } head_budgets { growth: POWER_LAW factor: 3 max_chunks: 10000 }",
  };
}

TEST(KvmMixerTest, OptionsChangeTheResult) {
  const KvmOutcome plain = KvmLayer(std::string(kTestHeads) + kGrows).Run();
  for (const std::string& options : Options()) EXPECT_NE(KvmLayer(options).Run().out, plain.out) << options;
}

TEST(KvmMixerTest, OptionsKeepBitsInPiecesAndThreads) {
  std::vector<std::string> options = Options();
  options.push_back(std::string(kTestHeads) + kGrows);
  for (const std::string& text : options) {
    for (DType state : {DType::kF32, DType::kBF16, DType::kI8}) {
      SCOPED_TRACE(testing::Message() << text << " " << Name(state));
      const KvmLayer layer(text, state);
      const KvmOutcome whole = layer.Run();
      for (const std::vector<int64_t>& pieces : std::vector<std::vector<int64_t>>{{1}, {7, 1, 3}, {8}, {17, 1}}) {
        ExpectSameBits(layer.Run(pieces), whole);
      }
      ExpectSameBits(layer.Run({11}, /*num_threads=*/3), whole);
    }
  }
}

TEST(KvmMixerTest, AppendBelowLeavesRoomInTheBudget) {
  const std::string budget = "budget { growth: POWER_LAW factor: 4 max_chunks: 10000 append_below: ";
  int64_t before = 0;
  for (const std::string threshold : {"-100", "2", "4", "100"}) {
    const KvmLayer layer(std::string(kTestHeads) + budget + threshold + " }");
    const KvmOutcome outcome = layer.Run();
    EXPECT_GT(outcome.num_rows, before) << threshold;
    EXPECT_LE(outcome.num_rows, layer.Size().rows);
    EXPECT_LE(outcome.byte_size, layer.Size().bytes);
    before = outcome.num_rows;
  }
  EXPECT_EQ(before, 27);  // 4·sqrt(48) = 27.7
}

TEST(KvmMixerTest, HeadBudgetsAreThoseOfTheHeadsAlone) {
  const std::string a = "{ min_rows: 8 }", b = "{ growth: POWER_LAW factor: 3 max_chunks: 10000 }";
  const std::string heads = kTestHeads;
  const KvmLayer layer(heads + "head_budgets " + a + " head_budgets " + b);
  const KvmOutcome both = layer.Run();
  const KvmOutcome all_a = KvmLayer(heads + "budget " + a).Run(), all_b = KvmLayer(heads + "budget " + b).Run();
  ASSERT_EQ(all_a.num_rows, 8);
  ASSERT_EQ(all_b.num_rows, 20);  // 3·sqrt(48) = 20.8
  EXPECT_EQ(both.num_rows, 20);
  EXPECT_EQ(both.Get("kvm_row_counts").ints(), (absl::Span<const int64_t>({8, 20})));
  EXPECT_FALSE(all_a.Has("kvm_row_counts"));
  for (const std::string name : {"kvm_s_k", "kvm_s_v", "kvm_s_vlen"}) {
    const Tensor& padded = both.Get(name);
    const int64_t dim = padded.shape()[2];
    ASSERT_EQ(padded.shape(), (Shape{2, 20, dim}));
    const auto floats = padded.floats();
    EXPECT_EQ(floats.first(8 * dim), all_a.Get(name).floats().first(8 * dim)) << name;
    EXPECT_EQ(floats.subspan(20 * dim), all_b.Get(name).floats().subspan(20 * dim)) << name;
    for (const float x : floats.subspan(8 * dim, 12 * dim)) EXPECT_EQ(x, 0) << name;
  }
  EXPECT_EQ(layer.Size().rows, 20);
}

TEST(KvmMixerTest, StateSizeIsExact) {
  std::vector<std::string> exact = Options();
  exact.erase(exact.begin());  // append_below: an upper bound
  exact.push_back(std::string(kTestHeads) + kGrows);
  for (const std::string& options : exact) {
    for (DType state : {DType::kF32, DType::kBF16, DType::kI8}) {
      const KvmLayer layer(options, state);
      const KvmOutcome outcome = layer.Run();
      EXPECT_EQ(outcome.byte_size, layer.Size().bytes) << options << " " << Name(state);
      EXPECT_EQ(outcome.num_rows, layer.Size().rows) << options << " " << Name(state);
    }
  }
}

// Integer rows and a bfloat16 window: the state is that of bfloat16 to the bit, what is read of it differs by rounding.
TEST(KvmMixerTest, IntegerRowsKeepTheStateAndStayNear) {
  const std::string text = std::string(kTestHeads) + kGrows;
  const KvmOutcome integers = KvmLayer(text, DType::kI8).Run(), halves = KvmLayer(text, DType::kBF16).Run();
  for (const std::string name : {"kvm_s_k", "kvm_s_v", "kvm_s_vlen", "kvm_bswa_k", "kvm_bswa_v"}) {
    EXPECT_EQ(integers.Get(name).floats(), halves.Get(name).floats()) << name;
  }
  const KvmOutcome exact = KvmLayer(text).Run();
  double largest = 0;
  for (size_t i = 0; i < exact.out.size(); ++i) {
    // As long as only the window is read.
    if (i < 2 * kTestChunk * kTestWidth) {
      EXPECT_EQ(integers.out[i], halves.out[i]);
    }
    EXPECT_NEAR(integers.out[i], exact.out[i], 0.05);
    largest = std::max<double>(largest, std::abs(exact.out[i]));
  }
  EXPECT_GT(largest, 1);
  EXPECT_NE(integers.out, halves.out);
}

}  // namespace
}  // namespace kvm
