#ifndef TESTING_CONFORMANCE_STATE_CONFORMANCE_H_
#define TESTING_CONFORMANCE_STATE_CONFORMANCE_H_

// What every stack promises of states that are saved, restored and forked, as GoogleTest expectations. Results are
// compared bit by bit.

#include "absl/types/span.h"
#include "testing/conformance/conformance.h"

namespace kvm {

// A state saved at any position and restored goes on as if nothing had been, on another number of threads and in other
// pieces, and saves the same again. What is saved is as large as ByteSize() and the prediction say.
void ExpectRestoredStatesGoOn(const ConformanceSubject& subject);
// Restore refuses fields that lack any one, have one too many or twice, or one of another type, shape or range; its
// message names that field.
void ExpectBadFieldsAreRefused(const ConformanceSubject& subject);
// A fork has its original's memory until one of them is extended. Both may be extended at once.
void ExpectForksShareUntilExtended(const ConformanceSubject& subject);
// States of stacks whose fields have other names are refused. Any others are either refused or good to go on with.
void ExpectForeignStatesAreRefused(absl::Span<const ConformanceSubject> subjects);

}  // namespace kvm

#endif  // TESTING_CONFORMANCE_STATE_CONFORMANCE_H_
