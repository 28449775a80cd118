#ifndef KVM_IO_TOKENIZER_TOKENIZER_JSON_FIELDS_H_
#define KVM_IO_TOKENIZER_TOKENIZER_JSON_FIELDS_H_

// Reading the fields of a tokenizer.json. `where` names the value in messages: "tokenizer.json: model.vocab".

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace kvm {

// InvalidArgument: "`where` is `found`; expected `expected`".
absl::Status RefuseJson(absl::string_view where, const nlohmann::json& found, absl::string_view expected);

// The field, or null where there is none.
const nlohmann::json& JsonField(const nlohmann::json& object, const char* name);

// Refuses fields other than `known` that are on: not null, false, 0 or "". They change what a tokenizer does. Messages
// name them by `prefix` + name.
absl::Status RequireOff(const nlohmann::json& object, std::initializer_list<absl::string_view> known,
                        const std::string& prefix);

// Refuses all but objects whose type this is.
absl::Status RequireType(const nlohmann::json& value, absl::string_view type, const std::string& where);

// The type of an object that has one.
absl::StatusOr<std::string> TypeOf(const nlohmann::json& value, const std::string& where);

absl::StatusOr<bool> BoolField(const nlohmann::json& object, const char* name, bool absent, const std::string& where);

// Id of the vocabulary or of an added token.
absl::StatusOr<int32_t> ParseTokenId(const nlohmann::json& value, const std::string& where);

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_TOKENIZER_JSON_FIELDS_H_
