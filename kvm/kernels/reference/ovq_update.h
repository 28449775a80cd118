#ifndef KVM_KERNELS_REFERENCE_OVQ_UPDATE_H_
#define KVM_KERNELS_REFERENCE_OVQ_UPDATE_H_

#include <cstdint>
#include <vector>

namespace kvm {
namespace reference {

struct Centroid {
  std::vector<double> key;
  std::vector<double> value;
  double count = 0;
};

struct OvqToken {
  std::vector<double> key;  // of unit length
  std::vector<double> value;
};

struct OvqRules {
  int64_t max_centroids = 0;
  bool linear = false;         // min(t, M) centroids after t tokens rather than floor(t·M/(t + M))
  bool counts_as_bias = true;  // log(count) is added to a centroid's attention score
  bool delta_rule = false;     // from the second chunk on, values learn the error of what the dictionary predicts
  bool normalize = false;      // centroids are scaled to unit length, with the delta rule their keys alone
  double query_scale = 1;      // multiplies k·centroid where the delta rule predicts
};

struct OvqRoutes {
  std::vector<int64_t> centroids;  // of every token
  // The smallest difference between a similarity that decided something and the best that did not equal it.
  double smallest_gap = 1e300;
};

// Takes in a complete chunk, at the end of which `tokens_so_far` tokens have been seen.
OvqRoutes UpdateDictionary(const std::vector<OvqToken>& chunk, int64_t tokens_so_far, const OvqRules& rules,
                           std::vector<Centroid>& dictionary);

// softmax(scale·(query·key) + log(count))·values over a dictionary; `counts_as_bias` false leaves out log(count).
std::vector<double> Predict(const std::vector<double>& query, double scale, bool counts_as_bias,
                            const std::vector<Centroid>& dictionary);

}  // namespace reference
}  // namespace kvm

#endif  // KVM_KERNELS_REFERENCE_OVQ_UPDATE_H_
