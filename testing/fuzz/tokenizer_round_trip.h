#ifndef KVM_TESTING_FUZZ_TOKENIZER_ROUND_TRIP_H_
#define KVM_TESTING_FUZZ_TOKENIZER_ROUND_TRIP_H_

#include "absl/strings/string_view.h"
#include "kvm/io/tokenizer/tokenizer.h"

namespace kvm {

// Encodes `text` and checks that all ids are in the vocabulary and decode. With `exact`, to the same bytes.
void TokenizerRoundTrip(const Tokenizer& tokenizer, absl::string_view text, bool exact);

}  // namespace kvm

#endif  // KVM_TESTING_FUZZ_TOKENIZER_ROUND_TRIP_H_
