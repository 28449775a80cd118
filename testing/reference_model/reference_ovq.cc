#include <algorithm>
#include <cmath>
#include <utility>

#include "kvm/kernels/reference/ovq_update.h"
#include "testing/reference_model/reference_attention.h"
#include "testing/reference_model/reference_mixers.h"

namespace kvm {
namespace reference {
namespace {

void ScaleToUnitLength(Rows* rows) {
  for (Row& row : *rows) {
    const double length = Norm(row) + 1e-5;
    for (double& v : row) v /= length;
  }
}

OvqRules Rules(const OvqSpec& spec, double query_scale) {
  OvqRules rules;
  rules.max_centroids = spec.max_centroids();
  rules.linear = spec.grow_linearly();
  rules.counts_as_bias = !spec.counts_for_rate_only();
  rules.delta_rule = spec.delta_rule();
  rules.normalize = spec.normalize_centroids();
  rules.query_scale = query_scale;
  return rules;
}

// One query at position t over the dictionary and the chunk's tokens from `first` on.
Row Ask(const Row& query, int64_t first, int64_t t, const OvqRules& rules, const std::vector<Centroid>& dictionary,
        const Rows& k, const Rows& v) {
  Rows keys(k.begin() + first, k.begin() + t + 1), values(v.begin() + first, v.begin() + t + 1);
  Row biases(keys.size(), 0);
  for (const Centroid& centroid : dictionary) {
    keys.push_back(centroid.key);
    values.push_back(centroid.value);
    biases.push_back(rules.counts_as_bias ? std::log(centroid.count) : 0);
  }
  return Attend(query, keys, Row(keys.size(), rules.query_scale), values, biases);
}

}  // namespace

Rows Ovq(const OvqSpec& spec, const Weights& weights, const Rows& x, const Rows& anchor, KvmTrace* trace) {
  Projected p = ProjectWithoutNorms(spec.projections(), weights, x, anchor);
  const Row beta = weights.Vector("beta");
  const int64_t chunk = spec.chunk_len(), length = static_cast<int64_t>(x.size());
  HeadRows out(p.num_heads);
  for (int64_t h = 0; h < p.num_heads; ++h) {
    ScaleToUnitLength(&p.q[h]);
    ScaleToUnitLength(&p.k[h]);
    const OvqRules rules = Rules(spec, beta[h] * std::sqrt(static_cast<double>(p.k[h][0].size())));
    std::vector<Centroid> dictionary;
    for (int64_t first = 0; first < length; first += chunk) {
      for (int64_t t = first; t < std::min(first + chunk, length); ++t) {
        out[h].push_back(Ask(p.q[h][t], first, t, rules, dictionary, p.k[h], p.v[h]));
      }
      if (first + chunk > length) break;
      std::vector<OvqToken> tokens;
      for (int64_t t = first; t < first + chunk; ++t) tokens.push_back({p.k[h][t], p.v[h][t]});
      const OvqRoutes routes = UpdateDictionary(tokens, first + chunk, rules, dictionary);
      trace->smallest_gap = std::min(trace->smallest_gap, routes.smallest_gap);
    }
  }
  return Linear(JoinHeads(out), weights, "c_proj");
}

}  // namespace reference
}  // namespace kvm
