#include "kvm/kernels/reference/ovq_update.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvm {
namespace reference {
namespace {

using Vector = std::vector<double>;

double Dot(const Vector& a, const Vector& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

void ScaleToUnitLength(Vector& x) {
  const double length = std::max(std::sqrt(Dot(x, x)), 1e-12);
  for (double& e : x) e /= length;
}

int64_t SizeAfter(int64_t tokens, const OvqRules& rules) {
  const int64_t max = rules.max_centroids;
  return rules.linear ? std::min(tokens, max) : tokens * max / (tokens + max);
}

// The most similar centroid of each token.
struct Choice {
  int64_t centroid = 0;
  double similarity = 0;
  double gap = 1e300;  // to the next smaller similarity
};

Choice Choose(const OvqToken& token, const std::vector<Centroid>& dictionary) {
  Vector similarities;
  for (const Centroid& centroid : dictionary) similarities.push_back(Dot(token.key, centroid.key));
  const auto best = std::max_element(similarities.begin(), similarities.end());  // the first of equals
  Choice choice = {best - similarities.begin(), *best};
  for (const double s : similarities) {
    if (s < *best) choice.gap = std::min(choice.gap, *best - s);
  }
  return choice;
}

}  // namespace

Vector Predict(const Vector& query, double scale, bool counts_as_bias, const std::vector<Centroid>& dictionary) {
  Vector scores;
  for (const Centroid& centroid : dictionary) {
    scores.push_back(scale * Dot(query, centroid.key) + (counts_as_bias ? std::log(centroid.count) : 0));
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  Vector out(dictionary[0].value.size(), 0);
  for (size_t i = 0; i < scores.size(); ++i) {
    const double weight = std::exp(scores[i] - largest);
    sum += weight;
    for (size_t c = 0; c < out.size(); ++c) out[c] += weight * dictionary[i].value[c];
  }
  for (double& x : out) x /= sum;
  return out;
}

OvqRoutes UpdateDictionary(const std::vector<OvqToken>& chunk, int64_t tokens_so_far, const OvqRules& rules,
                           std::vector<Centroid>& dictionary) {
  OvqRoutes routes;
  routes.centroids.assign(chunk.size(), 0);
  const bool learns_errors = rules.delta_rule && !dictionary.empty();
  std::vector<Vector> values;
  for (const OvqToken& token : chunk) {
    values.push_back(token.value);
    if (!learns_errors) continue;
    const Vector predicted = Predict(token.key, rules.query_scale, rules.counts_as_bias, dictionary);
    for (size_t c = 0; c < predicted.size(); ++c) values.back()[c] -= predicted[c];
  }

  std::vector<size_t> tokens(chunk.size());
  std::iota(tokens.begin(), tokens.end(), size_t{0});
  if (dictionary.empty()) {
    dictionary.push_back({chunk[0].key, values[0], 1});
    tokens.erase(tokens.begin());
  }
  const std::vector<Centroid> old = dictionary;
  std::vector<Choice> choices(chunk.size());
  for (const size_t t : tokens) choices[t] = Choose(chunk[t], old);
  std::stable_sort(tokens.begin(), tokens.end(),
                   [&](size_t a, size_t b) { return choices[a].similarity < choices[b].similarity; });

  const int64_t wanted = SizeAfter(tokens_so_far, rules) - static_cast<int64_t>(old.size());
  const size_t num_new = static_cast<size_t>(std::max<int64_t>(0, wanted));
  // Both who founds and in which order is decided by similarities of neighbours in this order.
  for (size_t i = 1; i < tokens.size() && i <= num_new; ++i) {
    const double gap = choices[tokens[i]].similarity - choices[tokens[i - 1]].similarity;
    if (gap > 0) routes.smallest_gap = std::min(routes.smallest_gap, gap);
  }
  for (size_t i = 0; i < num_new; ++i) {
    routes.centroids[tokens[i]] = static_cast<int64_t>(dictionary.size());
    dictionary.push_back({chunk[tokens[i]].key, values[tokens[i]], 1});
  }

  const std::vector<size_t> joining(tokens.begin() + static_cast<int64_t>(num_new), tokens.end());
  for (const size_t t : joining) {
    routes.centroids[t] = choices[t].centroid;
    routes.smallest_gap = std::min(routes.smallest_gap, choices[t].gap);
    dictionary[choices[t].centroid].count += 1;
  }
  for (const size_t t : joining) {
    const Centroid& before = old[choices[t].centroid];
    Centroid& centroid = dictionary[choices[t].centroid];
    for (size_t c = 0; c < centroid.key.size(); ++c) {
      centroid.key[c] += (chunk[t].key[c] - before.key[c]) / centroid.count;
    }
    for (size_t c = 0; c < centroid.value.size(); ++c) {
      centroid.value[c] += (values[t][c] - (learns_errors ? 0 : before.value[c])) / centroid.count;
    }
  }
  for (Centroid& centroid : dictionary) {
    if (rules.normalize) ScaleToUnitLength(centroid.key);
    if (rules.normalize && !rules.delta_rule) ScaleToUnitLength(centroid.value);
  }
  return routes;
}

}  // namespace reference
}  // namespace kvm
