#ifndef KVM_IO_TOKENIZER_TOKENIZER_JSON_STEPS_H_
#define KVM_IO_TOKENIZER_TOKENIZER_JSON_STEPS_H_

// What a tokenizer.json does before and after its model.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/io/tokenizer/patterns/pre_tokenizer.h"
#include "nlohmann/json.hpp"

namespace kvm {

// Each takes the value of the field of that name; `where` names it in messages.

// Whether text is brought into NFC. The value is null, NFC or a Sequence of these.
absl::StatusOr<bool> ParseNormalizer(const nlohmann::json& value, const std::string& where);

// ByteLevel, or a Sequence of Split and Digits that ends with ByteLevel. The steps may hold patterns that PCRE2
// refuses.
absl::StatusOr<std::vector<SplitStep>> ParsePreTokenizer(const nlohmann::json& value, const std::string& where);

// Null, ByteLevel, TemplateProcessing or a Sequence of these: the ids that are put around a text.
struct AroundText {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};
absl::StatusOr<AroundText> ParsePostProcessor(const nlohmann::json& value, const std::string& where);

// Null or ByteLevel.
absl::Status CheckDecoder(const nlohmann::json& value, const std::string& where);

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_TOKENIZER_JSON_STEPS_H_
