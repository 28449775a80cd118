#ifndef TESTING_REFERENCE_MODEL_REFERENCE_ATTENTION_H_
#define TESTING_REFERENCE_MODEL_REFERENCE_ATTENTION_H_

// What the attention-style reference mixers share.

#include <cstdint>
#include <vector>

#include "kvm/model/stack/stack.pb.h"
#include "testing/reference_model/reference_math.h"

namespace kvm {
namespace reference {

// [head][T][d].
using HeadRows = std::vector<Rows>;

struct Projected {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  HeadRows q, k, v;
};
// Queries, keys and values with value residual and token shift.
Projected ProjectWithoutNorms(const ProjectionSpec& spec, const Weights& weights, const Rows& x, const Rows& anchor);
// And with layer norm and rotary embedding.
Projected Project(const ProjectionSpec& spec, StackSpec::TableType table, const Weights& weights, const Rows& x,
                  const Rows& anchor);

// Softmax attention of one query over all keys; `scales` has one entry a key, and so has `biases` if not empty.
Row Attend(const Row& query, const Rows& keys, const Row& scales, const Rows& values, const Row& biases = {});

// Heads side by side: [T][heads·d].
Rows JoinHeads(const HeadRows& heads);

}  // namespace reference
}  // namespace kvm

#endif  // TESTING_REFERENCE_MODEL_REFERENCE_ATTENTION_H_
