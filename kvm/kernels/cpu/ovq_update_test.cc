#include "kvm/kernels/cpu/ovq_update.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/vectors/every_target.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/reference/ovq_update.h"

namespace kvm {
namespace {

using ::testing::Message;

// Far above float32's rounding of the tests' similarities, which stay below 200.
constexpr double kClearGap = 2e-4;

// Memory for one dictionary, and the dictionary itself.
struct Memory {
  Memory(int64_t max_centroids, int64_t dim) {
    view.capacity = KeyPanelElements(max_centroids, 1);
    view.dim = dim;
    keys.resize(KeyPanelElements(view.capacity, dim));
    values.resize(view.capacity * dim);
    counts.resize(view.capacity);
    log_counts.resize(view.capacity);
    view.keys = keys.data();
    view.values = values.data();
    view.counts = counts.data();
    view.log_counts = log_counts.data();
  }
  Memory(const Memory&) = delete;

  std::vector<float> Key(int64_t centroid) const {
    std::vector<float> key(view.dim);
    for (int64_t c = 0; c < view.dim; ++c) key[c] = keys[KeyPanelOffset(centroid, c, view.dim)];
    return key;
  }
  std::vector<float> Value(int64_t centroid) const {
    return {values.begin() + centroid * view.dim, values.begin() + (centroid + 1) * view.dim};
  }
  void Add(const std::vector<float>& key, const std::vector<float>& value, float count) {
    const int64_t i = view.count++;
    for (int64_t c = 0; c < view.dim; ++c) keys[KeyPanelOffset(i, c, view.dim)] = key[c];
    std::copy(value.begin(), value.end(), values.begin() + i * view.dim);
    counts[i] = count;
    log_counts[i] = std::log(count);
  }

  std::vector<float> keys, values, counts, log_counts;
  OvqDictionary view;
};

// A chunk of tokens.
struct Chunk {
  explicit Chunk(int64_t dim) : dim(dim) {}
  // Small integers, so that equal similarities are exactly equal.
  Chunk(int64_t n, int64_t dim, uint32_t seed) : dim(dim), keys(n * dim), values(n * dim) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> integer(-4, 4);
    for (float& x : keys) x = static_cast<float>(integer(random));
    for (float& x : values) x = static_cast<float>(integer(random));
  }
  void Add(const std::vector<float>& key, const std::vector<float>& value) {
    keys.insert(keys.end(), key.begin(), key.end());
    values.insert(values.end(), value.begin(), value.end());
  }

  int64_t size() const { return static_cast<int64_t>(keys.size()) / dim; }
  MatrixView<const float> Keys() const { return {keys.data(), size(), dim}; }
  MatrixView<const float> Values() const { return {values.data(), size(), dim}; }
  std::vector<reference::OvqToken> Reference() const {
    std::vector<reference::OvqToken> tokens;
    for (int64_t t = 0; t < size(); ++t) {
      tokens.push_back({{keys.begin() + t * dim, keys.begin() + (t + 1) * dim},
                        {values.begin() + t * dim, values.begin() + (t + 1) * dim}});
    }
    return tokens;
  }

  int64_t dim;
  std::vector<float> keys, values;
};

void ExpectNear(const std::vector<float>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t c = 0; c < got.size(); ++c) ASSERT_NEAR(got[c], expected[c], 1e-5) << "channel " << c;
}

void ExpectEqualsReference(const Memory& memory, const std::vector<reference::Centroid>& expected) {
  ASSERT_EQ(memory.view.count, static_cast<int64_t>(expected.size()));
  for (int64_t i = 0; i < memory.view.count; ++i) {
    SCOPED_TRACE(Message() << "centroid " << i);
    ASSERT_EQ(memory.counts[i], expected[i].count);
    ASSERT_NEAR(memory.log_counts[i], std::log(expected[i].count), 1e-6);
    ExpectNear(memory.Key(i), expected[i].key);
    ExpectNear(memory.Value(i), expected[i].value);
  }
}

TEST(DictionarySizeTest, SaturatesOrStops) {
  const OvqSchedule saturating = {20, false}, linear = {20, true};
  for (int64_t t = 1; t < 3000; ++t) {
    EXPECT_EQ(DictionarySize(saturating, t), std::max<int64_t>(1, t * 20 / (t + 20))) << t;
    EXPECT_EQ(DictionarySize(linear, t), std::min<int64_t>(t, 20)) << t;
  }
  EXPECT_EQ(DictionarySize(saturating, 0), 0);
  EXPECT_EQ(DictionarySize(linear, 0), 0);
  // M·t alone would not fit into 64 bits.
  EXPECT_EQ(DictionarySize({int64_t{1} << 24, false}, int64_t{1} << 40), (int64_t{1} << 24) - 256);
}

TEST(UpdateDictionaryTest, FirstTokenFoundsTheFirstCentroid) {
  ForEveryTarget([] {
    Memory memory(4, 2);
    Chunk chunk(2);
    chunk.Add({1, 0}, {8, 0});
    chunk.Add({0, 1}, {0, 4});   // similarity 0
    chunk.Add({1, 0}, {0, 0});   // 1
    chunk.Add({-1, 0}, {2, 2});  // −1: the least similar, so the first to found
    chunk.Add({0, 1}, {4, 4});   // 0 again: the later of equals
    OvqUpdateOptions options;
    options.num_centroids = 3;
    EXPECT_EQ(UpdateDictionary(chunk.Keys(), chunk.Values(), options, memory.view),
              (std::pmr::vector<int64_t>{0, 2, 0, 1, 0}));
    ASSERT_EQ(memory.view.count, 3);
    // Tokens 2 and 4 join: (1, 0) + ((1, 0) − (1, 0))/3 + ((0, 1) − (1, 0))/3.
    EXPECT_EQ(memory.counts[0], 3);
    ExpectNear(memory.Key(0), {2.0 / 3, 1.0 / 3});
    ExpectNear(memory.Value(0), {8 - 8.0 / 3 - 4.0 / 3, 4.0 / 3});
    EXPECT_EQ(memory.Key(1), (std::vector<float>{-1, 0}));
    EXPECT_EQ(memory.Value(1), (std::vector<float>{2, 2}));
    EXPECT_EQ(memory.Key(2), (std::vector<float>{0, 1}));
    EXPECT_EQ(memory.Value(2), (std::vector<float>{0, 4}));
    EXPECT_EQ(memory.counts[2], 1);
    EXPECT_EQ(memory.log_counts[2], 0);
  });
}

TEST(UpdateDictionaryTest, TokensJoinTheLowestOfEquallySimilarOldCentroids) {
  ForEveryTarget([] {
    for (int64_t padding : {0, 5, 15, 16, 60, 70, 130}) {
      SCOPED_TRACE(padding);
      Memory memory(padding + 5, 2);
      for (int64_t i = 0; i < padding; ++i) memory.Add({-1, -1}, {0, 0}, 1);
      memory.Add({1, 0}, {0, 0}, 1);
      for (int i = 0; i < 3; ++i) memory.Add({1, 1}, {0, 0}, 1);
      Chunk chunk(2);
      chunk.Add({-2, 3}, {1, 1});  // finds its own key only among the new
      chunk.Add({-2, 3}, {1, 1});
      chunk.Add({1, 2}, {2, 2});
      OvqUpdateOptions options;
      options.num_centroids = padding + 5;
      const auto centroids = UpdateDictionary(chunk.Keys(), chunk.Values(), options, memory.view);
      EXPECT_EQ(centroids, (std::pmr::vector<int64_t>{padding + 4, padding + 1, padding + 1}));
      EXPECT_EQ(memory.counts[padding + 1], 3);
      EXPECT_EQ(memory.counts[padding + 2], 1);
    }
  });
}

TEST(UpdateDictionaryTest, UntouchedCentroidsKeepTheirBits) {
  ForEveryTarget([] {
    Memory memory(4, 3);
    memory.Add({0.1f, 0.2f, 0.3f}, {0.4f, 0.5f, 0.6f}, 7);
    memory.Add({1, 1, 1}, {1, 1, 1}, 2);
    Chunk chunk(3);
    chunk.Add({3, 3, 3}, {5, 5, 5});
    OvqUpdateOptions options;
    options.normalize_keys = options.normalize_values = true;
    UpdateDictionary(chunk.Keys(), chunk.Values(), options, memory.view);
    EXPECT_EQ(memory.Key(0), (std::vector<float>{0.1f, 0.2f, 0.3f}));
    EXPECT_EQ(memory.Value(0), (std::vector<float>{0.4f, 0.5f, 0.6f}));
    EXPECT_EQ(memory.counts[0], 7);
    ExpectNear(memory.Key(1), std::vector<double>(3, 1 / std::sqrt(3.0)));
    EXPECT_EQ(memory.counts[1], 3);
    EXPECT_EQ(memory.view.count, 2);
  });
}

TEST(UpdateDictionaryTest, ZeroCentroidsStayZeroWhenNormalized) {
  ForEveryTarget([] {
    Memory memory(1, 3);
    Chunk chunk(3);
    chunk.Add({0, 0, 0}, {0, 0, 0});
    OvqUpdateOptions options;
    options.normalize_keys = options.normalize_values = true;
    UpdateDictionary(chunk.Keys(), chunk.Values(), options, memory.view);
    EXPECT_EQ(memory.Key(0), std::vector<float>(3, 0));
    EXPECT_EQ(memory.Value(0), std::vector<float>(3, 0));
  });
}

TEST(UpdateDictionaryTest, ErrorsAreAddedNotAveraged) {
  ForEveryTarget([] {
    Memory memory(2, 1);
    memory.Add({2}, {10}, 2);
    Chunk chunk(1);
    chunk.Add({4}, {4});
    chunk.Add({6}, {8});
    chunk.Add({-1}, {3});
    OvqUpdateOptions options;
    options.num_centroids = 2;
    options.values_are_errors = true;
    UpdateDictionary(chunk.Keys(), chunk.Values(), options, memory.view);
    EXPECT_EQ(memory.counts[0], 4);
    EXPECT_EQ(memory.Key(0), std::vector<float>{2 + 2.0f / 4 + 4.0f / 4});
    EXPECT_EQ(memory.Value(0), std::vector<float>{10 + 4.0f / 4 + 8.0f / 4});
    EXPECT_EQ(memory.Value(1), std::vector<float>{3});
  });
}

TEST(UpdateDictionaryTest, TokensThatAreNoNumbersJoinTheFirstCentroid) {
  ForEveryTarget([] {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    Memory memory(20, 2);
    for (int i = 0; i < 19; ++i) memory.Add({1, static_cast<float>(i)}, {1, 1}, 1);
    Chunk chunk(2);
    chunk.Add({nan, nan}, {nan, nan});
    chunk.Add({nan, 1}, {1, 1});
    OvqUpdateOptions options;
    options.num_centroids = 20;
    EXPECT_EQ(UpdateDictionary(chunk.Keys(), chunk.Values(), options, memory.view), (std::pmr::vector<int64_t>{19, 0}));
  });
}

// Dictionaries and chunks of every size around panels, tiles and vectors.
TEST(UpdateDictionaryTest, AgreesWithReferenceForOddSizes) {
  for (const int64_t dim : {1, 5, 16, 33}) {
    for (const int64_t count : {1, 2, 15, 16, 17, 63, 64, 65, 130}) {
      for (const int64_t n : {1, 2, 4, 31, 32, 33, 70}) {
        SCOPED_TRACE(Message() << count << " centroids, " << n << " tokens of " << dim);
        const Chunk centroids(count, dim, /*seed=*/5), chunk(n, dim, /*seed=*/6);
        std::vector<reference::Centroid> expected;
        for (const reference::OvqToken& token : centroids.Reference()) {
          expected.push_back({token.key, token.value, static_cast<double>(1 + expected.size() % 3)});
        }
        const std::vector<reference::Centroid> before = expected;
        reference::OvqRules rules;
        rules.max_centroids = count + n / 3;
        rules.linear = true;
        const reference::OvqRoutes routes = reference::UpdateDictionary(chunk.Reference(), count + n, rules, expected);
        ForEveryTarget([&] {
          Memory memory(count + n / 3, dim);
          for (const reference::Centroid& c : before) {
            memory.Add({c.key.begin(), c.key.end()}, {c.value.begin(), c.value.end()}, static_cast<float>(c.count));
          }
          OvqUpdateOptions options;
          options.num_centroids = count + n / 3;
          const auto centroids = UpdateDictionary(chunk.Keys(), chunk.Values(), options, memory.view);
          ASSERT_EQ(std::vector<int64_t>(centroids.begin(), centroids.end()), routes.centroids);
          ExpectEqualsReference(memory, expected);
        });
      }
    }
  }
}

constexpr int64_t kDim = 12;
constexpr uint32_t kNumChunks = 6;

// Chunk i of a sequence.
Chunk ChunkOf(uint32_t sequence, uint32_t i, int64_t chunk_len) { return {chunk_len, kDim, sequence * kNumChunks + i}; }

// The first sequence in which rounding decides nothing.
uint32_t ClearSequence(int64_t chunk_len, const reference::OvqRules& rules) {
  for (uint32_t sequence = 0;; ++sequence) {
    std::vector<reference::Centroid> dictionary;
    double smallest_gap = kClearGap;
    for (uint32_t i = 0; i < kNumChunks; ++i) {
      const std::vector<reference::OvqToken> tokens = ChunkOf(sequence, i, chunk_len).Reference();
      const reference::OvqRoutes routes = reference::UpdateDictionary(tokens, (i + 1) * chunk_len, rules, dictionary);
      smallest_gap = std::min(smallest_gap, routes.smallest_gap);
    }
    if (smallest_gap == kClearGap) return sequence;
  }
}

// Chunk after chunk, with the errors of the delta rule taken from the reference's predictions.
void RunChunks(int64_t chunk_len, const reference::OvqRules& rules, uint32_t sequence) {
  std::vector<reference::Centroid> expected;
  Memory memory(rules.max_centroids, kDim);
  for (uint32_t i = 0; i < kNumChunks; ++i) {
    OvqUpdateOptions options;
    options.num_centroids = DictionarySize({rules.max_centroids, rules.linear}, (i + 1) * chunk_len);
    options.values_are_errors = rules.delta_rule && i > 0;
    options.normalize_keys = rules.normalize;
    options.normalize_values = rules.normalize && !rules.delta_rule;
    Chunk chunk = ChunkOf(sequence, i, chunk_len);
    const std::vector<reference::OvqToken> tokens = chunk.Reference();
    for (int64_t t = 0; t < chunk_len && options.values_are_errors; ++t) {
      const std::vector<double> predicted =
          reference::Predict(tokens[t].key, rules.query_scale, rules.counts_as_bias, expected);
      for (int64_t c = 0; c < kDim; ++c) chunk.values[t * kDim + c] -= static_cast<float>(predicted[c]);
    }
    const reference::OvqRoutes routes = reference::UpdateDictionary(tokens, (i + 1) * chunk_len, rules, expected);
    const auto centroids = UpdateDictionary(chunk.Keys(), chunk.Values(), options, memory.view);
    ASSERT_EQ(std::vector<int64_t>(centroids.begin(), centroids.end()), routes.centroids);
    ExpectEqualsReference(memory, expected);
  }
}

TEST(UpdateDictionaryTest, AgreesWithReferenceForAllFlags) {
  for (int flags = 0; flags < 16; ++flags) {
    reference::OvqRules rules;
    rules.max_centroids = 19;
    rules.linear = (flags & 1) != 0;
    rules.counts_as_bias = (flags & 2) != 0;
    rules.delta_rule = (flags & 4) != 0;
    rules.normalize = (flags & 8) != 0;
    rules.query_scale = 0.25;
    for (const int64_t chunk_len : {1, 2, 8, 19, 24}) {
      SCOPED_TRACE(Message() << "flags " << flags << ", chunks of " << chunk_len);
      const uint32_t sequence = ClearSequence(chunk_len, rules);
      ForEveryTarget([&] { RunChunks(chunk_len, rules, sequence); });
    }
  }
}

}  // namespace
}  // namespace kvm
