#ifndef KVM_MODEL_LANGUAGE_MODEL_H_
#define KVM_MODEL_LANGUAGE_MODEL_H_

// A stack with its weights: tokens in, logits out.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<LanguageModel> model, LanguageModel::Create(spec, weights, {}));
//   ExecutionContext context(/*num_threads=*/2);
//   SequenceState sequence = model->NewSequence();
//   std::vector<float> logits(model->vocab_size());
//   RETURN_IF_ERROR(model->Extend({{&sequence, prompt, MatrixView<float>(logits.data(), 1, logits.size())}}, context));

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/model/engine/engine.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/weight_source.h"
#include "kvm/state/sequence_state.h"
#include "kvm/state/state_size.h"

namespace kvm {

// New tokens of one sequence.
struct SequenceInput {
  SequenceState* sequence = nullptr;
  absl::Span<const int32_t> tokens;  // may be empty
  MatrixView<float> logits;          // [rows, vocab_size]: no row, one for the last token, or one for every token
};

// Sees the residual stream behind a layer: x [n, D] belongs to tokens first_token.. of batch[sequence].
using HiddenObserver =
    absl::FunctionRef<void(int64_t layer, int64_t sequence, int64_t first_token, MatrixView<const float> x)>;

// Checks batches and cuts them into passes, which an Engine computes (kvm/model/engine/engine.h). Immutable and
// thread-safe; every caller has its own ExecutionContext.
class LanguageModel {
 public:
  // Checks the spec and the weights, and makes the engine, which packs these; `weights` is not needed afterwards. A
  // source whose memory lasts (WeightSource::Memory) may be shared instead of copied. InvalidArgument as ValidateStack
  // and CheckWeights, and whatever the engine's factory returns.
  static absl::StatusOr<std::unique_ptr<LanguageModel>> Create(const StackSpec& spec, const WeightSource& weights,
                                                               const ModelOptions& options);
  ~LanguageModel();

  const StackSpec& spec() const { return spec_; }
  int64_t vocab_size() const { return spec_.vocab_size(); }
  // Of all weights.
  int64_t WeightByteSize() const { return engine_->WeightByteSize(); }
  // Of the weights that are read to continue a sequence by one token and to compute its logits.
  int64_t StepWeightByteSize() const { return engine_->StepWeightByteSize(); }
  // What a sequence of so many tokens takes.
  StateSize SizeOf(int64_t context_length) const { return engine_->SizeOf(context_length); }

  // A sequence without tokens.
  SequenceState NewSequence() const;

  // Extends every sequence by its tokens and computes the logits asked for. The results of a sequence are the same bits
  // however its tokens are cut into calls, whatever other sequences are in the batch, and for any number of threads
  // (but see ModelOptions::chunked_recurrences).
  //
  // InvalidArgument for token ids outside the vocabulary, logits of a wrong shape, a state of another stack, or one
  // that is named twice; FailedPrecondition for a sequence that is broken(). No sequence is changed then.
  // ResourceExhausted when memory runs out, or what else the engine says: a sequence is then as it was, or whole some
  // tokens further (position() tells), or broken().
  absl::Status Extend(absl::Span<const SequenceInput> batch, ExecutionContext& context) const;
  absl::Status Extend(absl::Span<const SequenceInput> batch, ExecutionContext& context, HiddenObserver observer) const;

 private:
  // Where a share of a pass comes from.
  struct Origin {
    int64_t sequence = 0;  // index into the batch
    int64_t first_token = 0;
  };
  struct Pass {
    explicit Pass(std::pmr::memory_resource* memory) : shares(memory), origins(memory) {}
    std::pmr::vector<PassRows> shares;
    std::pmr::vector<Origin> origins;  // of each share
  };

  LanguageModel(StackSpec spec, std::unique_ptr<Engine> engine, uint64_t stack_id);

  absl::Status ExtendObserved(absl::Span<const SequenceInput> batch, ExecutionContext& context,
                              const HiddenObserver* observer) const;
  absl::Status CheckBatch(absl::Span<const SequenceInput> batch, ExecutionContext& context) const;
  absl::Status Run(const Pass& pass, const HiddenObserver* observer, ExecutionContext& context) const;

  StackSpec spec_;
  std::unique_ptr<Engine> engine_;
  uint64_t stack_id_;
};

}  // namespace kvm

#endif  // KVM_MODEL_LANGUAGE_MODEL_H_
