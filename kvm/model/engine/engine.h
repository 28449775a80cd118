#ifndef KVM_MODEL_ENGINE_ENGINE_H_
#define KVM_MODEL_ENGINE_ENGINE_H_

// What computes a model on one device. LanguageModel checks a batch and cuts it into passes; an engine computes a pass.
// The boundary is a whole pass, not an operator, so that a device may fuse, order and place its work as it likes.

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/state/sequence_state.h"
#include "kvm/state/state_size.h"

namespace kvm {

// One sequence's share of a pass. Everything is host memory, whatever the device.
struct PassRows {
  SequenceState* sequence = nullptr;  // from this engine's NewSequence(), and whole; no sequence has two shares
  absl::Span<const int32_t> tokens;   // at least one, all in the vocabulary
  int64_t first_row = 0;              // of the pass; shares follow each other without gaps
  MatrixView<float> logits;           // [rows, vocab_size]: no row, one for the last token, or one for every token

  int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }
};

// Sees the residual stream behind a layer: x [n, D] belongs to the n tokens of pass[share].
using PassObserver = absl::FunctionRef<void(int64_t layer, int64_t share, MatrixView<const float> x)>;

// Immutable and thread-safe; every caller has its own ExecutionContext.
class Engine {
 public:
  virtual ~Engine() = default;

  // "cpu", "cuda": engines of one name go on from each other's states to the same bits.
  virtual absl::string_view arithmetic() const = 0;

  // The most rows that Forward takes at a time. Results do not depend on how a batch is cut.
  virtual int64_t max_pass_rows() const = 0;

  // A sequence without tokens, whose layers are of this engine's own class. Its stack_id is the caller's to set.
  virtual SequenceState NewSequence() const = 0;

  // Makes the pass's sequences ready to be written to: what forks share is copied. ResourceExhausted, or
  // std::bad_alloc, leaves every sequence as good as it was.
  virtual absl::Status Prepare(absl::Span<const PassRows> pass, ExecutionContext& context) const = 0;

  // After Prepare: extends every sequence by its tokens, and writes the logits that are asked for. Positions are not
  // moved on; the caller does that. After an error, or std::bad_alloc, the pass's sequences are half changed.
  virtual absl::Status Forward(absl::Span<const PassRows> pass, const PassObserver* observer,
                               ExecutionContext& context) const = 0;

  // Bytes of all packed weights; and of those that a token reads which is continued and whose logits are wanted.
  virtual int64_t WeightByteSize() const = 0;
  virtual int64_t StepWeightByteSize() const = 0;

  // What a sequence of `context_length` tokens will take.
  virtual StateSize SizeOf(int64_t context_length) const = 0;
};

}  // namespace kvm

#endif  // KVM_MODEL_ENGINE_ENGINE_H_
