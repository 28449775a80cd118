#include "kvm/model/sampler.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kvm/kernels/cpu/pointwise/elementwise.h"

namespace kvm {
namespace {

// Number `index` of the random stream of `seed`, uniform in [0, 1): the SplitMix64 generator, which can start anywhere.
double Uniform(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * uint64_t{0x9e3779b97f4a7c15};
  z = (z ^ (z >> 30)) * uint64_t{0xbf58476d1ce4e5b9};
  z = (z ^ (z >> 27)) * uint64_t{0x94d049bb133111eb};
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

// The lowest of the tokens with the largest logit.
int32_t MostLikely(absl::Span<const float> logits) {
  size_t best = 0;
  float largest = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > largest) {
      largest = logits[i];
      best = i;
    }
  }
  return static_cast<int32_t>(best);
}

// In eight sums side by side, which one vector holds.
double Sum(absl::Span<const float> weights) {
  double sums[8] = {};
  size_t i = 0;
  for (; i + 8 <= weights.size(); i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += weights[i + j];
  }
  for (; i < weights.size(); ++i) sums[0] += weights[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// The weight at which the running sum passes `left`, from which those before it are taken off. Rounding may leave a
// little behind the last weight that counts: it takes that too. Not all weights are zero.
template <typename T>
size_t IndexAt(absl::Span<const T> weights, double& left) {
  size_t index = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    index = i;
    if (left < weights[i]) break;
    left -= weights[i];
  }
  return index;
}

}  // namespace

Sampler::Sampler(const SamplerState& state, absl::Span<const int32_t> seen) : state_(state) {
  for (const int32_t token : seen) Observe(token);
}

void Sampler::Observe(int32_t token) {
  if (static_cast<size_t>(token) >= seen_.size()) seen_.resize(token + 1);
  seen_[token] = true;
}

int32_t Sampler::Sample(absl::Span<const float> logits) {
  assert(std::any_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
  if (state_.options.repetition_penalty != 1) logits = Penalized(logits);
  const int32_t most_likely = MostLikely(logits);
  const int32_t token = state_.options.temperature == 0 ? most_likely : Draw(logits, logits[most_likely]);
  Observe(token);
  return token;
}

absl::Span<const float> Sampler::Penalized(absl::Span<const float> logits) {
  const float penalty = static_cast<float>(state_.options.repetition_penalty);
  penalized_.assign(logits.begin(), logits.end());
  for (size_t i = 0; i < std::min(logits.size(), seen_.size()); ++i) {
    if (seen_[i]) penalized_[i] = logits[i] > 0 ? logits[i] / penalty : logits[i] * penalty;
  }
  return penalized_;
}

int32_t Sampler::Draw(absl::Span<const float> logits, float largest) {
  const SamplerOptions& options = state_.options;
  weights_.resize(logits.size());
  std::transform(logits.begin(), logits.end(), weights_.begin(),
                 [](float x) { return std::isnan(x) ? -std::numeric_limits<float>::infinity() : x; });
  // Finite, so that a logit of −inf stays without weight.
  const double temperature = std::min<double>(options.temperature, std::numeric_limits<float>::max());
  SoftmaxWeights({weights_.data(), 1, static_cast<int64_t>(weights_.size())}, largest, static_cast<float>(temperature));
  if (options.top_k > 0 || options.top_p < 1) KeepMostLikely(logits);
  if (options.min_p > 0) {
    for (float& weight : weights_) weight = weight < options.min_p ? 0 : weight;
  }

  // The block is looked for first, then the token in it.
  constexpr size_t kBlock = 512;
  const absl::Span<const float> weights = weights_;
  block_sums_.clear();
  for (size_t first = 0; first < weights.size(); first += kBlock) {
    block_sums_.push_back(Sum(weights.subspan(first, kBlock)));
  }
  double total = 0;
  for (const double sum : block_sums_) total += sum;
  double left = Uniform(options.seed, state_.draws++) * total;
  const size_t first = kBlock * IndexAt<double>(block_sums_, left);
  return static_cast<int32_t>(first + IndexAt(weights.subspan(first, kBlock), left));
}

void Sampler::KeepMostLikely(absl::Span<const float> logits) {
  const SamplerOptions& options = state_.options;
  const auto is_more_likely = [logits](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  order_.clear();
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] > 0) order_.push_back(static_cast<int32_t>(i));
  }
  const auto at = [&](size_t i) { return order_.begin() + static_cast<std::ptrdiff_t>(i); };
  size_t kept = order_.size();
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < kept) {
    kept = static_cast<size_t>(options.top_k);
    std::nth_element(order_.begin(), at(kept), order_.end(), is_more_likely);
  }
  if (options.top_p < 1) {
    double wanted = 0;
    for (size_t i = 0; i < kept; ++i) wanted += options.top_p * weights_[order_[i]];
    // A few are enough as a rule: sorts no more than needed.
    size_t sorted = 0;
    double sum = 0;
    for (size_t i = 0; i < kept; ++i) {
      if (i == sorted) {
        const size_t next = std::min(kept, std::max<size_t>(64, 4 * sorted));
        std::partial_sort(at(sorted), at(next), at(kept), is_more_likely);
        sorted = next;
      }
      sum += weights_[order_[i]];
      if (sum >= wanted) kept = i + 1;
    }
  }
  for (size_t i = kept; i < order_.size(); ++i) weights_[order_[i]] = 0;
}

}  // namespace kvm
