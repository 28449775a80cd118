#include "kvm/kernels/reference/slot_attention.h"

#include <algorithm>
#include <cmath>

namespace kvm {
namespace reference {

std::vector<double> SlotAttention(const std::vector<double>& query, int64_t position,
                                  const std::vector<AttentionKey>& keys, int64_t span, double state_scale,
                                  double window_scale) {
  std::vector<const AttentionKey*> seen;
  std::vector<double> scores;
  for (const AttentionKey& key : keys) {
    if (!key.is_state && (key.position > position || position - key.position >= span)) continue;
    double dot = 0;
    for (size_t c = 0; c < query.size(); ++c) dot += query[c] * key.key[c];
    seen.push_back(&key);
    scores.push_back(dot * (key.is_state ? state_scale : window_scale) + key.bias);
  }

  std::vector<double> out(keys.empty() ? 0 : keys[0].value.size(), 0);
  if (seen.empty()) return out;
  const double max = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (size_t i = 0; i < seen.size(); ++i) {
    const double weight = std::exp(scores[i] - max);
    total += weight;
    for (size_t c = 0; c < out.size(); ++c) out[c] += weight * seen[i]->value[c];
  }
  for (double& x : out) x /= total;
  return out;
}

}  // namespace reference
}  // namespace kvm
