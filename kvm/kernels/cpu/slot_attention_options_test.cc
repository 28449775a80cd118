// Queries of the state's own, and state rows of integers.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/slot_attention.h"
#include "kvm/kernels/cpu/slot_attention_testing.h"
#include "kvm/kernels/cpu/vectors/every_target.h"

namespace kvm {
namespace {

// A state segment rounded to integers with a scale for each row.
struct IntegerSegment {
  IntegerSegment(const KeyValueSegment& exact, int64_t qk_dim, int64_t v_dim)
      : keys(KeyPanelElements(exact.count, qk_dim), 127),
        values(exact.count * v_dim),
        key_scales(KeyPanelElements(exact.count, 1), kNaN),
        value_scales(key_scales),
        view(exact) {
    const float* const exact_keys = static_cast<const float*>(exact.keys);
    const float* const exact_values = static_cast<const float*>(exact.values);
    for (int64_t i = 0; i < exact.count; ++i) {
      key_scales[i] = value_scales[i] = 0;
      for (int64_t c = 0; c < qk_dim; ++c) {
        key_scales[i] = std::max(key_scales[i], std::abs(exact_keys[KeyPanelOffset(i, c, qk_dim)]) / 127);
      }
      for (int64_t c = 0; c < v_dim; ++c) {
        value_scales[i] = std::max(value_scales[i], std::abs(exact_values[i * v_dim + c]) / 127);
      }
      for (int64_t c = 0; c < qk_dim; ++c) {
        const int64_t at = KeyPanelOffset(i, c, qk_dim);
        keys[at] = static_cast<int8_t>(std::lround(exact_keys[at] / key_scales[i]));
      }
      for (int64_t c = 0; c < v_dim; ++c) {
        const int64_t at = i * v_dim + c;
        values[at] = static_cast<int8_t>(std::lround(exact_values[at] / value_scales[i]));
      }
    }
    largest_key_scale = *std::max_element(key_scales.begin(), key_scales.begin() + exact.count);
    largest_value_scale = *std::max_element(value_scales.begin(), value_scales.begin() + exact.count);
    view.keys = keys.data();
    view.values = values.data();
    view.dtype = DType::kI8;
    view.key_scales = key_scales.data();
    view.value_scales = value_scales.data();
  }
  IntegerSegment(const IntegerSegment&) = delete;

  std::vector<int8_t> keys, values;
  std::vector<float> key_scales, value_scales;
  double largest_key_scale = 0, largest_value_scale = 0;
  KeyValueSegment view;
};

TEST(StateQueriesTest, ThatAreTheQueriesChangeNoBit) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    const Problem problem = StateAndWindow(12, 20, DType::kF32);
    const std::vector<KeyValueSegment> views = problem.Views();
    std::vector<float> out(70 * 20);
    AttentionHead head = problem.Head(views, 0, 70, out.data());
    head.state_queries = head.queries;
    SlotAttention({&head, 1}, pool);
    EXPECT_TRUE(SameBits(out, problem.Run(pool)));
  });
}

// Two softmaxes, one over the state with its own queries and one over the window, weighted by their sums of
// exponentials.
TEST(StateQueriesTest, RecombineByLogSumExp) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    const Problem problem = StateAndWindow(12, 20, DType::kF32);
    const std::vector<KeyValueSegment> views = problem.Views();
    std::vector<float> out(70 * 20);
    AttentionHead head = problem.Head(views, 0, 70, out.data());
    std::vector<float> state_queries(70 * 12);
    for (int64_t r = 0; r < 70; ++r) {
      for (int64_t c = 4; c < 12; ++c) state_queries[r * 12 + c] = head.queries.row(r)[c];  // the first four stay zero
    }
    head.state_queries = {state_queries.data(), 70, 12};
    SlotAttention({&head, 1}, pool);
    for (int64_t r = 0; r < 70; ++r) {
      const PartialSoftmax state = problem.Partial(state_queries.data() + r * 12, r, /*is_state=*/true);
      const PartialSoftmax window = problem.Partial(head.queries.row(r), r, /*is_state=*/false);
      const double state_share = 1 / (1 + std::exp(window.log_sum - state.log_sum));
      for (int64_t c = 0; c < 20; ++c) {
        const double expected = state_share * state.out[c] + (1 - state_share) * window.out[c];
        ASSERT_NEAR(out[r * 20 + c], expected, 2e-5) << r << ", " << c;
      }
    }
  });
}

// An integer key is off by scale/2 a channel, so a score by δ = state_scale·scale/2·Σ|q|, a weight by a factor of
// e^±2δ; a value is off by its scale/2.
TEST(IntegerRowsTest, StayWithinTheBound) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    for (int64_t v_dim : {7, 20, 128}) {
      const Problem problem = StateAndWindow(12, v_dim, DType::kF32);
      const std::vector<float> exact = problem.Run(pool);
      std::vector<KeyValueSegment> views = problem.Views();
      const IntegerSegment integers(views[0], 12, v_dim);
      views[0] = integers.view;
      const std::vector<float> out = problem.Run(views, 0, 70, pool);
      const AttentionHead head = problem.Head(views, 0, 70, nullptr);
      double largest_error = 0;
      for (int64_t r = 0; r < 70; ++r) {
        double query_sum = 0;
        for (int64_t c = 0; c < 12; ++c) query_sum += std::abs(head.queries.row(r)[c]);
        const double delta = head.state_scale * integers.largest_key_scale / 2 * query_sum;
        const double bound =
            problem.LargestValue() * (std::exp(2 * delta) - 1) + integers.largest_value_scale / 2 + 2e-5;
        ASSERT_LT(bound, 0.5);
        for (int64_t c = 0; c < v_dim; ++c) {
          const double error = std::abs(out[r * v_dim + c] - exact[r * v_dim + c]);
          ASSERT_LE(error, bound) << r << ", " << c;
          largest_error = std::max(largest_error, error);
        }
      }
      EXPECT_GT(largest_error, 1e-5) << "as if nothing had been rounded";
      // In pieces and one at a time: the same bits.
      for (int64_t piece : {1, 3, 33}) {
        for (int64_t first = 0; first < 70; first += piece) {
          const int64_t count = std::min(piece, 70 - first);
          ASSERT_TRUE(SameBits(problem.Run(views, first, count, pool), Rows(out, 70, first, count))) << piece;
        }
      }
    }
  });
}

}  // namespace
}  // namespace kvm
