#ifndef TESTING_REFERENCE_MODEL_REFERENCE_MIXERS_H_
#define TESTING_REFERENCE_MODEL_REFERENCE_MIXERS_H_

// The mixers as their definitions say, for a whole sequence at once: no caches, no pieces, loops over everything.

#include <cstdint>
#include <vector>

#include "kvm/model/stack/stack.pb.h"
#include "testing/reference_model/reference_math.h"

namespace kvm {
namespace reference {

// One state row.
struct StateRow {
  Row key, value;  // sums
  double radius = 0;
};

// What happened in the KVM and OVQ layers on the way.
struct KvmTrace {
  // The smallest difference of scores between what was chosen and what was not, exact ties (lowest row, earlier token)
  // aside. While it is far above float32's rounding, any correct implementation chooses the same.
  double smallest_gap = 1e300;
  // The state of KVM layers after the last token: [KVM layer][key/value head][row].
  std::vector<std::vector<std::vector<StateRow>>> states;
};

// x [T][D]: the layer's normed input; anchor [T][Hk·dv], or empty; `weights` are those under "transformer.h.I.attn.".
// Returns what the layer adds to the residual stream.
Rows Attention(const AttentionSpec& spec, StackSpec::TableType table, const Weights& weights, const Rows& x,
               const Rows& anchor);
Rows Kvm(const KvmSpec& spec, StackSpec::TableType table, const Weights& weights, const Rows& x, const Rows& anchor,
         KvmTrace* trace);
Rows BlockWindow(const BlockWindowSpec& spec, StackSpec::TableType table, const Weights& weights, const Rows& x,
                 const Rows& anchor);
Rows Ovq(const OvqSpec& spec, const Weights& weights, const Rows& x, const Rows& anchor, KvmTrace* trace);
Rows GatedDeltaNet(const GatedDeltaNetSpec& spec, const Weights& weights, const Rows& x);
Rows KimiDelta(const KimiDeltaSpec& spec, const Weights& weights, const Rows& x);
Rows Rwkv7(const Rwkv7Spec& spec, const Weights& weights, const Rows& x, const Rows& anchor);

}  // namespace reference
}  // namespace kvm

#endif  // TESTING_REFERENCE_MODEL_REFERENCE_MIXERS_H_
