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
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/weight_source.h"
#include "kvm/state/sequence_state.h"

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

// Immutable and thread-safe; every caller has its own ExecutionContext.
class LanguageModel {
 public:
  // Checks the spec and the weights, then packs these; `weights` is not needed afterwards. A source whose memory lasts
  // (WeightSource::Memory) and that has panels of the wanted type is not copied: the model shares its memory.
  // InvalidArgument as ValidateStack and CheckWeights, and as QuantizeWeights where weights are to be int8.
  static absl::StatusOr<std::unique_ptr<LanguageModel>> Create(const StackSpec& spec, const WeightSource& weights,
                                                               const ModelOptions& options);
  ~LanguageModel();

  const StackSpec& spec() const;
  int64_t vocab_size() const;
  int64_t WeightByteSize() const;
  // What of it a token reads that is continued and whose logits are wanted: all but the embedding, of which it is a
  // row.
  int64_t StepWeightByteSize() const;

  // A sequence without tokens.
  SequenceState NewSequence() const;

  // Extends every sequence by its tokens and computes the logits asked for. InvalidArgument, before any sequence is
  // changed, for token ids outside the vocabulary, logits of a wrong shape, a state of another stack, or one that is
  // named twice. The results of a sequence are the same bits however its tokens are cut into calls, whatever other
  // sequences are in the batch, and for any number of threads (but see ModelOptions::chunked_recurrences).
  absl::Status Extend(absl::Span<const SequenceInput> batch, ExecutionContext& context) const;
  absl::Status Extend(absl::Span<const SequenceInput> batch, ExecutionContext& context, HiddenObserver observer) const;

 private:
  struct Impl;
  explicit LanguageModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvm

#endif  // KVM_MODEL_LANGUAGE_MODEL_H_
