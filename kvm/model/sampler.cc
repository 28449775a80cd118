#include "kvm/model/sampler.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>

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

bool IsMoreLikely(const TokenCandidate& a, const TokenCandidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// Keeps the fewest most likely candidates whose weights reach a share `top_p` of all.
void KeepTopP(double top_p, std::vector<TokenCandidate>* candidates) {
  double total = 0;
  for (const TokenCandidate& candidate : *candidates) total += candidate.weight;
  // A few candidates are enough as a rule: sorts no more than needed.
  size_t sorted = 0;
  double sum = 0;
  for (size_t i = 0; i < candidates->size(); ++i) {
    if (i == sorted) {
      const size_t next = std::min(candidates->size(), std::max<size_t>(64, 4 * sorted));
      std::partial_sort(candidates->begin() + sorted, candidates->begin() + next, candidates->end(), IsMoreLikely);
      sorted = next;
    }
    sum += (*candidates)[i].weight;
    if (sum >= top_p * total) {
      candidates->resize(i + 1);
      return;
    }
  }
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
  const SamplerOptions& options = state_.options;
  assert(std::any_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
  std::vector<TokenCandidate>& candidates = candidates_;
  candidates.clear();
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    float logit = logits[i];
    if (i < seen_.size() && seen_[i]) {
      const float penalty = static_cast<float>(options.repetition_penalty);
      logit = logit > 0 ? logit / penalty : logit * penalty;
    }
    if (!std::isnan(logit) && logit != -std::numeric_limits<float>::infinity()) {
      candidates.push_back({static_cast<int32_t>(i), logit, 0});
    }
  }

  int32_t token;
  if (options.temperature == 0) {
    token = std::min_element(candidates.begin(), candidates.end(), IsMoreLikely)->token;
  } else {
    const size_t top_k = static_cast<size_t>(options.top_k);
    if (top_k > 0 && top_k < candidates.size()) {
      std::partial_sort(candidates.begin(), candidates.begin() + top_k, candidates.end(), IsMoreLikely);
      candidates.resize(top_k);
    }
    const double largest = std::min_element(candidates.begin(), candidates.end(), IsMoreLikely)->logit;
    for (TokenCandidate& candidate : candidates) {
      candidate.weight = candidate.logit == largest ? 1 : std::exp((candidate.logit - largest) / options.temperature);
    }
    if (options.top_p < 1) KeepTopP(options.top_p, &candidates);
    candidates.erase(std::remove_if(candidates.begin(), candidates.end(),
                                    [&](const TokenCandidate& candidate) { return candidate.weight < options.min_p; }),
                     candidates.end());

    double total = 0;
    for (const TokenCandidate& candidate : candidates) total += candidate.weight;
    double left = Uniform(options.seed, state_.draws++) * total;
    size_t drawn = 0;
    // Rounding may leave a little behind the last candidate: it takes that too.
    while (drawn + 1 < candidates.size() && left >= candidates[drawn].weight) left -= candidates[drawn++].weight;
    token = candidates[drawn].token;
  }
  Observe(token);
  return token;
}

}  // namespace kvm
