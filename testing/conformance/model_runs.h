#ifndef TESTING_CONFORMANCE_MODEL_RUNS_H_
#define TESTING_CONFORMANCE_MODEL_RUNS_H_

// Running a model over tokens that come in pieces, and comparing what came out bit by bit.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/language_model.h"

namespace kvm {

// The tokens of one sequence and how they are cut into calls.
struct RunInput {
  SequenceState* sequence = nullptr;
  absl::Span<const int32_t> tokens;
  // Tokens a call; the last entry, which is positive, repeats until the end. Empty: all at once.
  std::vector<int64_t> pieces;
};

// What a model computed for one sequence.
struct SequenceRun {
  std::vector<float> logits;               // [tokens, vocab_size]
  std::vector<std::vector<float>> hidden;  // of every layer [tokens, width]
};

// Extends all sequences, in each call by the next piece of each that has tokens left. Whatever Extend refuses.
absl::StatusOr<std::vector<SequenceRun>> RunInPieces(const LanguageModel& model, absl::Span<const RunInput> inputs,
                                                     ExecutionContext& context);

// How many entries differ in their bits; all of the longer one when the lengths differ.
int64_t CountDifferentBits(absl::Span<const float> a, absl::Span<const float> b);

// The same over logits and hidden states, and over the bytes of tensors that are paired in order.
int64_t CountDifferentBits(const SequenceRun& a, const SequenceRun& b);
int64_t CountDifferentBits(absl::Span<const NamedTensor> a, absl::Span<const NamedTensor> b);

}  // namespace kvm

#endif  // TESTING_CONFORMANCE_MODEL_RUNS_H_
