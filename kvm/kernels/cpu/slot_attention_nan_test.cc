// What is not a number comes out as not a number, for the queries that read it and for no others.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/slot_attention.h"
#include "kvm/kernels/cpu/vectors/every_target.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/reference/slot_attention.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr int64_t kQk = 5;
constexpr int64_t kV = 37;
constexpr int64_t kStateRows = 70;
constexpr int64_t kWindowKeys = 130;

// Queries over state rows with biases and a window: all that a call reads.
struct Inputs {
  // The last of `num_queries` queries stands at the last position of the window.
  explicit Inputs(int64_t num_queries)
      : queries(num_queries * kQk),
        state_queries(num_queries * kQk),
        state_keys(KeyPanelElements(kStateRows, kQk)),
        state_values(kStateRows * kV),
        biases(KeyPanelElements(kStateRows, 1)),
        window_keys(KeyPanelElements(kWindowKeys, kQk)),
        window_values(kWindowKeys * kV) {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (std::vector<float>* values :
         {&queries, &state_queries, &state_keys, &state_values, &biases, &window_keys, &window_values}) {
      for (float& x : *values) x = uniform(random);
    }
  }

  int64_t num_queries() const { return static_cast<int64_t>(queries.size()) / kQk; }
  int64_t first_position() const { return kWindowKeys - num_queries(); }
  bool Sees(int64_t query, int64_t window_key) const {
    const int64_t position = first_position() + query;
    return window_key <= position && position - window_key < span;
  }

  std::vector<float> Run() const {
    std::vector<float> out(num_queries() * kV, -77);
    KeyValueSegment segments[2];
    segments[0].keys = state_keys.data();
    segments[0].values = state_values.data();
    segments[0].count = kStateRows;
    segments[0].is_state = true;
    segments[0].biases = biases.data();
    segments[1].keys = window_keys.data();
    segments[1].values = window_values.data();
    segments[1].count = kWindowKeys;
    AttentionHead head;
    head.queries = {queries.data(), num_queries(), kQk};
    head.state_queries = {state_queries.data(), num_queries(), kQk};
    head.out = {out.data(), num_queries(), kV};
    head.segments = segments;
    head.first_position = first_position();
    head.span = span;
    head.state_scale = state_scale;
    head.window_scale = window_scale;
    ThreadPool pool(1);
    SlotAttention({&head, 1}, pool);
    return out;
  }

  std::vector<float> queries, state_queries;
  std::vector<float> state_keys, state_values, biases;
  std::vector<float> window_keys, window_values;
  float state_scale = 0.5f;
  float window_scale = 0.7f;
  int64_t span = 100;
};

int64_t NumNan(const std::vector<float>& out, int64_t query) {
  int64_t count = 0;
  for (int64_t c = 0; c < kV; ++c) count += std::isnan(out[query * kV + c]) ? 1 : 0;
  return count;
}

// One query alone goes another way through memory than several.
template <typename Body>
void ForSomeNumbersOfQueries(Body body) {
  ForEveryTarget([&] {
    for (const int64_t num_queries : {1, 2, 7, 40}) {
      SCOPED_TRACE(testing::Message() << num_queries << " queries");
      body(num_queries);
    }
  });
}

// Keys in the first lane of a tile, inside one, and the last of all.
const int64_t kSomeStateRows[] = {0, 13, 64, kStateRows - 1};
const int64_t kSomeWindowKeys[] = {0, 31, 64, 95, 127, kWindowKeys - 1};

TEST(SlotAttentionNanTest, OfAStateKeyOrItsBiasIsSeenByAllQueries) {
  ForSomeNumbersOfQueries([](int64_t num_queries) {
    for (const int64_t row : kSomeStateRows) {
      Inputs key(num_queries), bias(num_queries);
      key.state_keys[KeyPanelOffset(row, 2, kQk)] = kNaN;
      bias.biases[row] = kNaN;
      const std::vector<float> of_key = key.Run(), of_bias = bias.Run();
      for (int64_t q = 0; q < num_queries; ++q) {
        EXPECT_EQ(NumNan(of_key, q), kV) << row;
        EXPECT_EQ(NumNan(of_bias, q), kV) << row;
      }
    }
  });
}

TEST(SlotAttentionNanTest, OfAStateValueIsInItsChannelOfAllQueries) {
  ForSomeNumbersOfQueries([](int64_t num_queries) {
    for (const int64_t row : kSomeStateRows) {
      for (const int64_t channel : {int64_t{0}, int64_t{17}, kV - 1}) {
        Inputs inputs(num_queries);
        inputs.state_values[row * kV + channel] = kNaN;
        const std::vector<float> out = inputs.Run();
        for (int64_t q = 0; q < num_queries; ++q) {
          EXPECT_TRUE(std::isnan(out[q * kV + channel])) << row;
          EXPECT_EQ(NumNan(out, q), 1) << row;
        }
      }
    }
  });
}

TEST(SlotAttentionNanTest, OfAWindowKeyOrValueIsSeenByTheQueriesThatSeeIt) {
  ForSomeNumbersOfQueries([](int64_t num_queries) {
    const std::vector<float> clean = Inputs(num_queries).Run();
    for (const int64_t i : kSomeWindowKeys) {
      Inputs key(num_queries), value(num_queries);
      key.window_keys[KeyPanelOffset(i, kQk - 1, kQk)] = kNaN;
      value.window_values[i * kV + 20] = kNaN;
      const std::vector<float> of_key = key.Run(), of_value = value.Run();
      for (int64_t q = 0; q < num_queries; ++q) {
        EXPECT_EQ(NumNan(of_key, q), key.Sees(q, i) ? kV : 0) << i << ", " << q;
        EXPECT_EQ(NumNan(of_value, q), value.Sees(q, i) ? 1 : 0) << i << ", " << q;
        for (int64_t c = 0; c < kV && !key.Sees(q, i); ++c) EXPECT_EQ(of_key[q * kV + c], clean[q * kV + c]);
      }
    }
  });
}

TEST(SlotAttentionNanTest, OfAQueryIsItsOwn) {
  ForSomeNumbersOfQueries([](int64_t num_queries) {
    for (int64_t poisoned = 0; poisoned < num_queries; ++poisoned) {
      Inputs of_window(num_queries), of_state(num_queries);
      of_window.queries[poisoned * kQk + 1] = kNaN;
      of_state.state_queries[poisoned * kQk + 3] = kNaN;
      for (const std::vector<float>& out : {of_window.Run(), of_state.Run()}) {
        for (int64_t q = 0; q < num_queries; ++q) EXPECT_EQ(NumNan(out, q), q == poisoned ? kV : 0) << q;
      }
    }
  });
}

TEST(SlotAttentionNanTest, OfAScaleIsEverywhere) {
  ForSomeNumbersOfQueries([](int64_t num_queries) {
    Inputs of_window(num_queries), of_state(num_queries);
    of_window.window_scale = kNaN;
    of_state.state_scale = kNaN;
    for (const std::vector<float>& out : {of_window.Run(), of_state.Run()}) {
      for (int64_t q = 0; q < num_queries; ++q) EXPECT_EQ(NumNan(out, q), kV) << q;
    }
  });
}

TEST(SlotAttentionNanTest, ByOverflowOfAScore) {
  ForSomeNumbersOfQueries([](int64_t num_queries) {
    // ∞ − ∞ within a dot product, and a score of +∞.
    Inputs difference(num_queries), infinite(num_queries);
    for (int64_t q = 0; q < num_queries; ++q) {
      for (std::vector<float>* queries : {&difference.queries, &infinite.queries}) {
        (*queries)[q * kQk] = (*queries)[q * kQk + 1] = 10;
      }
    }
    difference.window_keys[KeyPanelOffset(95, 0, kQk)] = 3e38f;
    difference.window_keys[KeyPanelOffset(95, 1, kQk)] = -3e38f;
    infinite.window_keys[KeyPanelOffset(95, 0, kQk)] = 3e38f;
    for (const Inputs* inputs : {&difference, &infinite}) {
      const std::vector<float> out = inputs->Run();
      for (int64_t q = 0; q < num_queries; ++q) EXPECT_EQ(NumNan(out, q), inputs->Sees(q, 95) ? kV : 0) << q;
    }
  });
}

TEST(SlotAttentionNanTest, OfScalesOfIntegerRows) {
  const std::vector<int8_t> keys(KeyPanelElements(20, kQk), 3), values(20 * kV, 5);
  const std::vector<float> query(kQk, 0.5f);
  ThreadPool pool(1);
  ForEveryTarget([&] {
    for (const bool of_key : {true, false}) {
      std::vector<float> key_scales(KeyPanelElements(20, 1), 0.1f), value_scales = key_scales;
      (of_key ? key_scales : value_scales)[18] = kNaN;
      std::vector<float> out(kV);
      KeyValueSegment segment;
      segment.keys = keys.data();
      segment.values = values.data();
      segment.dtype = DType::kI8;
      segment.key_scales = key_scales.data();
      segment.value_scales = value_scales.data();
      segment.count = 20;
      segment.is_state = true;
      AttentionHead head;
      head.queries = {query.data(), 1, kQk};
      head.out = {out.data(), 1, kV};
      head.segments = {&segment, 1};
      SlotAttention({&head, 1}, pool);
      EXPECT_EQ(NumNan(out, 0), kV) << of_key;
    }
  });
}

TEST(SlotAttentionInfinityTest, ScoresOfMinusInfinityWeighNothing) {
  ForSomeNumbersOfQueries([](int64_t num_queries) {
    // All of the state's first tile, and its rest with one row left out.
    Inputs inputs(num_queries);
    for (int64_t row = 0; row < kStateRows; ++row) inputs.biases[row] = row == 66 ? 0.25f : -kInfinity;
    const std::vector<float> out = inputs.Run();
    for (int64_t q = 0; q < num_queries; ++q) {
      double total = 0, sum = 0;
      const auto add = [&](const std::vector<float>& keys, int64_t i, const std::vector<float>& of, float scale,
                           float bias, float value) {
        double dot = 0;
        for (int64_t c = 0; c < kQk; ++c) dot += double{of[q * kQk + c]} * keys[KeyPanelOffset(i, c, kQk)];
        const double weight = std::exp(dot * scale + bias);
        total += weight;
        sum += weight * value;
      };
      add(inputs.state_keys, 66, inputs.state_queries, inputs.state_scale, 0.25f, inputs.state_values[66 * kV + 3]);
      for (int64_t i = 0; i < kWindowKeys; ++i) {
        if (!inputs.Sees(q, i)) continue;
        add(inputs.window_keys, i, inputs.queries, inputs.window_scale, 0, inputs.window_values[i * kV + 3]);
      }
      EXPECT_NEAR(out[q * kV + 3], sum / total, 1e-6) << q;
    }
  });
}

TEST(SlotAttentionInfinityTest, AllOfMinusInfinityAreNoSoftmax) {
  ForSomeNumbersOfQueries([](int64_t num_queries) {
    Inputs inputs(num_queries);
    inputs.biases.assign(inputs.biases.size(), -kInfinity);
    inputs.span = 0;  // nothing of the window
    const std::vector<float> out = inputs.Run();
    for (int64_t q = 0; q < num_queries; ++q) EXPECT_EQ(NumNan(out, q), kV) << q;
  });
}

// Queries at 10, 11, ... 19 with a window of positions 15 to 18 and a span of 2: those at 15 to 19 see something.
TEST(SlotAttentionNoKeyTest, GivesZeroToTheQueriesThatSeeNone) {
  constexpr int64_t kQueries = 10;
  Inputs inputs(kQueries);
  std::vector<reference::AttentionKey> reference_keys;
  for (int64_t i = 0; i < 4; ++i) {
    reference::AttentionKey key;
    for (int64_t c = 0; c < kQk; ++c) key.key.push_back(inputs.window_keys[KeyPanelOffset(i, c, kQk)]);
    for (int64_t c = 0; c < kV; ++c) key.value.push_back(inputs.window_values[i * kV + c]);
    key.position = 15 + i;
    reference_keys.push_back(key);
  }
  KeyValueSegment segment;
  segment.keys = inputs.window_keys.data();
  segment.values = inputs.window_values.data();
  segment.count = 4;
  segment.first_position = 15;
  ThreadPool pool(1);
  ForEveryTarget([&] {
    for (const int64_t piece : {int64_t{1}, int64_t{3}, kQueries}) {
      std::vector<float> out(kQueries * kV, kNaN);
      for (int64_t first = 0; first < kQueries; first += piece) {
        const int64_t count = std::min(piece, kQueries - first);
        AttentionHead head;
        head.queries = {inputs.queries.data() + first * kQk, count, kQk};
        head.out = {out.data() + first * kV, count, kV};
        head.segments = {&segment, 1};
        head.first_position = 10 + first;
        head.span = 2;
        SlotAttention({&head, 1}, pool);
      }
      for (int64_t q = 0; q < kQueries; ++q) {
        const std::vector<double> query(inputs.queries.begin() + q * kQk, inputs.queries.begin() + (q + 1) * kQk);
        const std::vector<double> expected = reference::SlotAttention(query, 10 + q, reference_keys, 2, 1, 1);
        ASSERT_EQ(expected.size(), static_cast<size_t>(kV));
        for (int64_t c = 0; c < kV; ++c) {
          if (q < 5) {
            EXPECT_EQ(out[q * kV + c], 0) << q;
            EXPECT_EQ(expected[c], 0) << q;
          } else {
            EXPECT_NEAR(out[q * kV + c], expected[c], 1e-6) << q;
          }
        }
      }
    }
  });
}

TEST(SlotAttentionNoKeyTest, GivesZeroWithoutSegmentsAndWithEmptyOnes) {
  const std::vector<float> queries(3 * kQk, 1.0f);
  ThreadPool pool(1);
  ForEveryTarget([&] {
    std::vector<KeyValueSegment> segments;
    for (int i = 0; i < 3; ++i) {
      std::vector<float> out(3 * kV, kNaN);
      AttentionHead head;
      head.queries = {queries.data(), 3, kQk};
      head.out = {out.data(), 3, kV};
      head.segments = segments;
      SlotAttention({&head, 1}, pool);
      EXPECT_EQ(out, std::vector<float>(3 * kV, 0.0f));
      segments.emplace_back();
      segments.back().is_state = i == 0;
    }
  });
}

}  // namespace
}  // namespace kvm
