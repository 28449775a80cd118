#ifndef KVM_STATE_SNAPSHOT_SESSION_H_
#define KVM_STATE_SNAPSHOT_SESSION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kvm/state/sequence_state.h"
#include "kvm/state/snapshot/sampler_state.h"

namespace kvm {

// A sequence with all it takes to go on with it: what a snapshot holds. Thread-compatible.
struct Session {
  SequenceState state;
  std::vector<int32_t> tokens;          // all that the state has taken in, in order: state.position() of them
  std::vector<float> logits;            // of the token that comes next [vocab_size]; empty when not known
  std::optional<SamplerState> sampler;  // of the generation that was going on

  // Cheap: the state is shared until one side changes.
  Session Fork() const { return {state.Fork(), tokens, logits, sampler}; }

  // Bytes of memory: the state, the tokens and the logits.
  int64_t ByteSize() const {
    return state.ByteSize() + static_cast<int64_t>(tokens.size() * sizeof(int32_t) + logits.size() * sizeof(float));
  }
};

}  // namespace kvm

#endif  // KVM_STATE_SNAPSHOT_SESSION_H_
