#ifndef TESTING_CONFORMANCE_CONFORMANCE_H_
#define TESTING_CONFORMANCE_CONFORMANCE_H_

// What every stack promises, whatever its mixers, as GoogleTest expectations. Results are compared bit by bit.

#include <memory>

#include "kvm/model/language_model.h"
#include "kvm/model/stack/model_options.h"
#include "testing/conformance/test_stacks.h"

namespace kvm {

struct ConformanceSubject {
  ConformanceSubject(const TestStack& stack, const ModelOptions& options);

  TestStack stack;
  ModelOptions options;
  std::unique_ptr<LanguageModel> model;
};

// However a sequence is cut into calls.
void ExpectSameBitsInPieces(const ConformanceSubject& subject);
// Whatever else is in the batch, with and without a past, and with calls that bring some sequences no token.
void ExpectSameBitsInRaggedBatches(const ConformanceSubject& subject);
// For any number of threads.
void ExpectSameBitsWithThreads(const ConformanceSubject& subject);
// Whether all, the last or no logits are asked for.
void ExpectSameBitsForFewerLogits(const ConformanceSubject& subject);
// A fork and its original go on independently.
void ExpectForksAreIndependent(const ConformanceSubject& subject);
// No logits and no hidden states see a later token; all see their own.
void ExpectCausality(const ConformanceSubject& subject);
// At every position the state is as large as predicted, or no larger where an upper bound is all that is promised.
void ExpectPredictedStateSize(const ConformanceSubject& subject);
// Bad batches are refused and change nothing.
void ExpectBadBatchesChangeNothing(const ConformanceSubject& subject);
// Recurrences in chunks are the same as step by step up to rounding, and for single tokens to the bit. The subject has
// chunked_recurrences and layers that know them.
void ExpectNearSteps(const ConformanceSubject& chunked);

}  // namespace kvm

#endif  // TESTING_CONFORMANCE_CONFORMANCE_H_
