#include "kvm/kernels/cpu/ovq_update.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kvm/base/check.h"
#include "kvm/kernels/check_view.h"
#include "kvm/kernels/cpu/pointwise/norms.h"
#include "kvm/kernels/key_panels.h"
#include "kvm/kernels/key_value.h"

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/ovq_update.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kvm/kernels/cpu/panel_dots-inl.h"

// Once, for all instruction sets.
#ifndef KVM_KERNELS_CPU_OVQ_UPDATE_SHARED_
#define KVM_KERNELS_CPU_OVQ_UPDATE_SHARED_
namespace kvm {
namespace {

// Centroids and tokens that are multiplied with each other at a time; no part of the result.
constexpr int64_t kCentroidTile = 64;
constexpr int64_t kTokenTile = 36;

// The centroid that a token is most similar to.
struct Nearest {
  float similarity = -std::numeric_limits<float>::infinity();
  int64_t centroid = 0;  // the lowest of those that reach `similarity`
};

}  // namespace
}  // namespace kvm
#endif  // KVM_KERNELS_CPU_OVQ_UPDATE_SHARED_

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {
namespace {

// Looks for a larger similarity among dots[0..count), which belong to centroids first, first + 1, ...
void KeepNearest(const float* HWY_RESTRICT dots, int64_t count, int64_t first, Nearest& nearest) {
  const PanelTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // In each lane the first of the largest; indices within a tile are exact in float32.
  auto best = hn::Set(d, nearest.similarity);
  auto at = hn::Set(d, -1.0f);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto similarity = hn::LoadU(d, dots + i);
    const auto better = hn::Gt(similarity, best);
    best = hn::IfThenElse(better, similarity, best);
    at = hn::IfThenElse(better, hn::Iota(d, static_cast<float>(i)), at);
  }
  HWY_ALIGN float lane_best[kKeyPanel];
  HWY_ALIGN float lane_at[kKeyPanel];
  hn::Store(best, d, lane_best);
  hn::Store(at, d, lane_at);
  int64_t found = -1;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const int64_t index = static_cast<int64_t>(lane_at[lane]);
    if (index < 0) continue;
    const bool earlier = found >= 0 && lane_best[lane] == nearest.similarity && index < found;
    if (lane_best[lane] > nearest.similarity || earlier) {
      nearest.similarity = lane_best[lane];
      found = index;
    }
  }
  for (; i < count; ++i) {
    if (dots[i] > nearest.similarity) {
      nearest.similarity = dots[i];
      found = i;
    }
  }
  if (found >= 0) nearest.centroid = first + found;
}

// Compares all keys with the first `count` centroids.
void FindNearestImpl(MatrixView<const float> keys, const float* centroids, int64_t count, Nearest* nearest) {
  HWY_ALIGN float memory[kTokenTile * kCentroidTile];
  for (int64_t tile = 0; tile < count; tile += kCentroidTile) {
    const int64_t in_tile = std::min(kCentroidTile, count - tile);
    const int64_t panels = (in_tile + kKeyPanel - 1) / kKeyPanel;
    for (int64_t token = 0; token < keys.rows; token += kTokenTile) {
      const MatrixView<float> dots(memory, std::min(kTokenTile, keys.rows - token), kCentroidTile);
      PanelDots<kCentroidTile>(keys.Rows(token, dots.rows), centroids + tile * keys.cols, panels, dots);
      for (int64_t t = 0; t < dots.rows; ++t) KeepNearest(dots.row(t), in_tile, tile, nearest[token + t]);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvm {

HWY_EXPORT(FindNearestImpl);

namespace {

constexpr float kLengthFloor = 1e-12f;

void ReadKey(const OvqDictionary& dictionary, int64_t centroid, float* key) {
  UnpackKeys(dictionary.keys, centroid, DType::kF32, {key, 1, dictionary.dim});
}

void WriteKey(const float* key, int64_t centroid, OvqDictionary& dictionary) {
  PackKeys({key, 1, dictionary.dim}, centroid, DType::kF32, dictionary.keys);
}

void Normalize(std::pmr::vector<float>& x) {
  const MatrixView<float> row(x.data(), 1, static_cast<int64_t>(x.size()));
  HeadUnitLength(row, row.cols, kLengthFloor, row);
}

void Found(const float* key, const float* value, OvqDictionary& dictionary) {
  const int64_t centroid = dictionary.count++;
  WriteKey(key, centroid, dictionary);
  std::copy_n(value, dictionary.dim, dictionary.values + centroid * dictionary.dim);
  dictionary.counts[centroid] = 1;
}

// Lets the tokens of a run, which are in order, join a centroid.
void Join(MatrixView<const float> keys, MatrixView<const float> values, const std::pmr::vector<int64_t>& tokens,
          int64_t begin, int64_t end, int64_t centroid, bool values_are_errors, OvqDictionary& dictionary) {
  const int64_t dim = dictionary.dim;
  float& count = dictionary.counts[centroid];
  count += static_cast<float>(end - begin);
  std::pmr::memory_resource* const memory = tokens.get_allocator().resource();
  std::pmr::vector<float> old_key(dim, memory);
  ReadKey(dictionary, centroid, old_key.data());
  float* const value = dictionary.values + centroid * dim;
  const std::pmr::vector<float> old_value(value, value + dim, memory);
  std::pmr::vector<float> key(old_key, memory);
  for (int64_t i = begin; i < end; ++i) {
    const float* const token_key = keys.row(tokens[i]);
    const float* const token_value = values.row(tokens[i]);
    for (int64_t c = 0; c < dim; ++c) key[c] += (token_key[c] - old_key[c]) / count;
    for (int64_t c = 0; c < dim; ++c) {
      value[c] += (values_are_errors ? token_value[c] : token_value[c] - old_value[c]) / count;
    }
  }
  WriteKey(key.data(), centroid, dictionary);
}

// Brings a centroid that was founded or joined into its final form.
void Finish(const OvqUpdateOptions& options, int64_t centroid, OvqDictionary& dictionary,
            std::pmr::memory_resource* memory) {
  const int64_t dim = dictionary.dim;
  std::pmr::vector<float> row(dim, memory);
  if (options.normalize_keys) {
    ReadKey(dictionary, centroid, row.data());
    Normalize(row);
    WriteKey(row.data(), centroid, dictionary);
  }
  if (options.normalize_values) {
    float* const value = dictionary.values + centroid * dim;
    row.assign(value, value + dim);
    Normalize(row);
    std::copy(row.begin(), row.end(), value);
  }
  dictionary.log_counts[centroid] = std::log(dictionary.counts[centroid]);
}

void CheckDictionary(const OvqDictionary& dictionary, CallSite site) {
  CheckAtLeast(dictionary.dim, 1, "dictionary.dim", site);
  CheckBetween(dictionary.count, 0, dictionary.capacity, "dictionary.count", site);
  CheckEq(dictionary.capacity % kKeyPanel, 0, "dictionary.capacity % kKeyPanel", site);
  if (dictionary.capacity == 0) return;
  Check(dictionary.keys != nullptr && dictionary.values != nullptr, "a dictionary with memory for keys and values",
        site);
  Check(dictionary.counts != nullptr && dictionary.log_counts != nullptr, "a dictionary with memory for counts", site);
}

}  // namespace

std::pmr::vector<int64_t> UpdateDictionary(MatrixView<const float> keys, MatrixView<const float> values,
                                           const OvqUpdateOptions& options, OvqDictionary& dictionary,
                                           std::pmr::memory_resource* memory) {
  CheckDictionary(dictionary, CallSite::Here());
  CheckAtLeast(keys.rows, 1, "keys.rows");
  CheckView(keys, keys.rows, dictionary.dim, "keys");
  CheckView(values, keys.rows, dictionary.dim, "values");
  // The first token of an empty dictionary becomes a centroid in any case.
  CheckAtMost(std::max<int64_t>(options.num_centroids, 1), dictionary.capacity, "options.num_centroids");
  std::pmr::vector<int64_t> centroids(keys.rows, 0, memory);
  int64_t first = 0;  // the first token that has a choice
  if (dictionary.count == 0) {
    Found(keys.row(0), values.row(0), dictionary);
    first = 1;
  }
  const int64_t old_count = dictionary.count;
  const int64_t n = keys.rows - first;
  std::pmr::vector<Nearest> nearest(n, memory);
  HWY_DYNAMIC_DISPATCH(FindNearestImpl)(keys.Rows(first, n), dictionary.keys, old_count, nearest.data());

  std::pmr::vector<int64_t> order(n, memory);  // tokens
  std::iota(order.begin(), order.end(), first);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const float of_a = nearest[a - first].similarity, of_b = nearest[b - first].similarity;
    return of_a != of_b ? of_a < of_b : a < b;
  });
  const int64_t num_new = std::min(n, std::max<int64_t>(0, options.num_centroids - old_count));
  for (int64_t i = 0; i < num_new; ++i) {
    centroids[order[i]] = dictionary.count;
    Found(keys.row(order[i]), values.row(order[i]), dictionary);
  }
  order.erase(order.begin(), order.begin() + num_new);

  // By centroid, and in order for each.
  for (const int64_t t : order) centroids[t] = nearest[t - first].centroid;
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return centroids[a] != centroids[b] ? centroids[a] < centroids[b] : a < b; });
  const int64_t num_joining = static_cast<int64_t>(order.size());
  for (int64_t begin = 0, end; begin < num_joining; begin = end) {
    const int64_t centroid = centroids[order[begin]];
    for (end = begin + 1; end < num_joining && centroids[order[end]] == centroid;) ++end;
    Join(keys, values, order, begin, end, centroid, options.values_are_errors, dictionary);
  }
  std::pmr::vector<bool> touched(dictionary.count, false, memory);
  for (const int64_t centroid : centroids) touched[centroid] = true;
  for (int64_t centroid = 0; centroid < dictionary.count; ++centroid) {
    if (touched[centroid]) Finish(options, centroid, dictionary, memory);
  }
  return centroids;
}

}  // namespace kvm
#endif  // HWY_ONCE
