#ifndef KVM_KERNELS_CPU_SLOT_ATTENTION_TESTING_H_
#define KVM_KERNELS_CPU_SLOT_ATTENTION_TESTING_H_

// Random attention problems for tests of slot_attention.h, with what the double precision reference makes of them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/cpu/slot_attention.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/reference/slot_attention.h"

namespace kvm {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The memory of one segment, and the segment itself.
struct Segment {
  std::vector<float> keys32, values32;
  std::vector<BFloat16> keys16, values16;
  std::vector<float> biases;
  KeyValueSegment view;
};

inline float Rounded(float x, DType dtype) { return dtype == DType::kBF16 ? ToFloat(ToBFloat16(x)) : x; }

// A softmax over some of the keys, with the logarithm of its sum of exponentials.
struct PartialSoftmax {
  double log_sum = 0;
  std::vector<double> out;
};

// One head's queries and segments with what the reference needs to know of them.
class Problem {
 public:
  Problem(int64_t qk_dim, int64_t v_dim) : qk_dim_(qk_dim), v_dim_(v_dim) {}

  // Lanes past `count` are NaN: they must have no influence.
  void AddSegment(int64_t count, bool is_state, int64_t first_position, DType dtype) {
    segments_.emplace_back();
    Segment& segment = segments_.back();
    segment.keys32.assign(KeyPanelElements(count, qk_dim_), kNaN);
    segment.values32.resize(count * v_dim_);
    for (int64_t i = 0; i < count; ++i) {
      reference::AttentionKey key;
      for (int64_t c = 0; c < qk_dim_; ++c) {
        const float x = Rounded(normal_(random_), dtype);
        segment.keys32[KeyPanelOffset(i, c, qk_dim_)] = x;
        key.key.push_back(x);
      }
      for (int64_t c = 0; c < v_dim_; ++c) {
        const float x = Rounded(normal_(random_), dtype);
        segment.values32[i * v_dim_ + c] = x;
        key.value.push_back(x);
      }
      key.is_state = is_state;
      key.position = first_position + i;
      reference_keys_.push_back(key);
    }
    for (float x : segment.keys32) segment.keys16.push_back(ToBFloat16(x));
    for (float x : segment.values32) segment.values16.push_back(ToBFloat16(x));
    const bool half = dtype == DType::kBF16;
    segment.view.keys = half ? static_cast<const void*>(segment.keys16.data()) : segment.keys32.data();
    segment.view.values = half ? static_cast<const void*>(segment.values16.data()) : segment.values32.data();
    segment.view.dtype = dtype;
    segment.view.count = count;
    segment.view.is_state = is_state;
    segment.view.first_position = first_position;
  }

  // Of the last segment's keys; NaN past its end.
  void AddBiases() {
    Segment& segment = segments_.back();
    segment.biases.assign(KeyPanelElements(segment.view.count, 1), kNaN);
    const size_t first = reference_keys_.size() - segment.view.count;
    for (int64_t i = 0; i < segment.view.count; ++i) {
      reference_keys_[first + i].bias = segment.biases[i] = 2 * normal_(random_);
    }
    segment.view.biases = segment.biases.data();
  }

  void SetQueries(int64_t count, int64_t first_position, int64_t span) {
    num_queries_ = count;
    first_position_ = first_position;
    span_ = span;
    queries_.resize(count * qk_dim_);
    for (float& x : queries_) x = normal_(random_);
  }

  void SetScales(float state, float window) {
    state_scale_ = state;
    window_scale_ = window;
  }

  // Makes float32 key i of segment s, or its value, unusable.
  void Poison(size_t s, int64_t i) {
    for (int64_t c = 0; c < qk_dim_; ++c) segments_[s].keys32[KeyPanelOffset(i, c, qk_dim_)] = kNaN;
    for (int64_t c = 0; c < v_dim_; ++c) segments_[s].values32[i * v_dim_ + c] = kNaN;
  }

  int64_t num_queries() const { return num_queries_; }
  std::vector<KeyValueSegment> Views() const {
    std::vector<KeyValueSegment> views;
    for (const Segment& segment : segments_) views.push_back(segment.view);
    return views;
  }

  // Queries first..first+count in one call, over the given segments.
  std::vector<float> Run(const std::vector<KeyValueSegment>& views, int64_t first, int64_t count,
                         ThreadPool& pool) const {
    std::vector<float> out(count * v_dim_, kNaN);
    const AttentionHead head = Head(views, first, count, out.data());
    SlotAttention({&head, 1}, pool);
    return out;
  }
  std::vector<float> Run(ThreadPool& pool) const { return Run(Views(), 0, num_queries_, pool); }

  AttentionHead Head(const std::vector<KeyValueSegment>& views, int64_t first, int64_t count, float* out) const {
    AttentionHead head;
    head.queries = {queries_.data() + first * qk_dim_, count, qk_dim_};
    head.out = {out, count, v_dim_};
    head.segments = views;
    head.first_position = first_position_ + first;
    head.span = span_;
    head.state_scale = state_scale_;
    head.window_scale = window_scale_;
    return head;
  }

  std::vector<double> Expected(int64_t r) const {
    const std::vector<double> query(queries_.begin() + r * qk_dim_, queries_.begin() + (r + 1) * qk_dim_);
    return reference::SlotAttention(query, first_position_ + r, reference_keys_, span_, state_scale_, window_scale_);
  }

  // What the query at position first_position + r sees of the state, or of the window.
  PartialSoftmax Partial(const float* query, int64_t r, bool is_state) const {
    PartialSoftmax partial;
    partial.out.resize(v_dim_);
    double sum = 0;
    for (const reference::AttentionKey& key : reference_keys_) {
      if (key.is_state != is_state || (!is_state && key.position > first_position_ + r)) continue;
      double score = 0;
      for (int64_t c = 0; c < qk_dim_; ++c) score += query[c] * key.key[c];
      const double weight = std::exp(score * (is_state ? state_scale_ : window_scale_));
      sum += weight;
      for (int64_t c = 0; c < v_dim_; ++c) partial.out[c] += weight * key.value[c];
    }
    for (double& x : partial.out) x /= sum;
    partial.log_sum = std::log(sum);
    return partial;
  }

  double LargestValue() const {
    double largest = 0;
    for (const reference::AttentionKey& key : reference_keys_) {
      for (double x : key.value) largest = std::max(largest, std::abs(x));
    }
    return largest;
  }

 private:
  int64_t qk_dim_;
  int64_t v_dim_;
  std::mt19937 random_{17};
  std::normal_distribution<float> normal_;
  std::vector<Segment> segments_;
  std::vector<reference::AttentionKey> reference_keys_;
  std::vector<float> queries_;
  int64_t num_queries_ = 0;
  int64_t first_position_ = 0;
  int64_t span_ = kUnlimitedSpan;
  float state_scale_ = 1;
  float window_scale_ = 1;
};

// A score's error is a few epsilon per channel of numbers near 1 and moves a weight by as much; sums of weights add to
// it.
inline void ExpectMatchesReference(const Problem& problem, const std::vector<float>& out) {
  const int64_t v_dim = static_cast<int64_t>(out.size()) / problem.num_queries();
  for (int64_t r = 0; r < problem.num_queries(); ++r) {
    const std::vector<double> expected = problem.Expected(r);
    for (int64_t c = 0; c < v_dim; ++c) ASSERT_NEAR(out[r * v_dim + c], expected[c], 2e-5) << r << ", " << c;
  }
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline std::vector<float> Rows(const std::vector<float>& all, int64_t num_rows, int64_t first, int64_t count) {
  const int64_t cols = static_cast<int64_t>(all.size()) / num_rows;
  return std::vector<float>(all.begin() + first * cols, all.begin() + (first + count) * cols);
}

// State rows, two window blocks and the queries of the second one, as in KVM: blocks of 70 positions.
inline Problem StateAndWindow(int64_t qk_dim, int64_t v_dim, DType dtype) {
  Problem problem(qk_dim, v_dim);
  problem.AddSegment(77, /*is_state=*/true, 0, dtype);
  problem.AddSegment(70, false, 70, dtype);
  problem.AddSegment(70, false, 140, dtype);
  problem.SetQueries(70, 140, kUnlimitedSpan);
  problem.SetScales(0.4f / std::sqrt(static_cast<float>(qk_dim)), 1.3f / std::sqrt(static_cast<float>(qk_dim)));
  return problem;
}

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_SLOT_ATTENTION_TESTING_H_
