#include "kvm/io/tokenizer/tokenizer_json_fields.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"

namespace kvm {
namespace {

using Json = nlohmann::json;

// Far above any vocabulary; keeps a mistaken id from asking for gigabytes.
constexpr int64_t kMaxIds = 1 << 22;

// A value for messages: short ones as they stand.
std::string Describe(const Json& value) {
  if (value.is_structured()) return absl::StrCat(value.empty() ? "an empty " : "an ", value.type_name());
  return value.is_string() ? Quoted(value.get_ref<const std::string&>()) : value.dump();
}

}  // namespace

absl::Status RefuseJson(absl::string_view where, const Json& found, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(where, " is ", Describe(found), "; expected ", expected));
}

const Json& JsonField(const Json& object, const char* name) {
  static const Json* const kNull = new Json;
  const auto found = object.find(name);
  return found == object.end() ? *kNull : *found;
}

absl::Status RequireOff(const Json& object, std::initializer_list<absl::string_view> known, const std::string& prefix) {
  for (const auto& [name, value] : object.items()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    if (value.is_null() || value == false || value == 0 || value == "") continue;
    return RefuseJson(absl::StrCat(prefix, name), value, "null, false or nothing: it is not supported");
  }
  return absl::OkStatus();
}

absl::Status RequireType(const Json& value, absl::string_view type, const std::string& where) {
  if (!value.is_object()) return RefuseJson(where, value, absl::StrCat("an object of type ", type));
  if (JsonField(value, "type") != type) return RefuseJson(where + ".type", JsonField(value, "type"), Quoted(type));
  return absl::OkStatus();
}

absl::StatusOr<std::string> TypeOf(const Json& value, const std::string& where) {
  if (!value.is_object()) return RefuseJson(where, value, "an object with a type");
  const Json& type = JsonField(value, "type");
  if (!type.is_string()) return RefuseJson(where + ".type", type, "a name");
  return type.get<std::string>();
}

absl::StatusOr<bool> BoolField(const Json& object, const char* name, bool absent, const std::string& where) {
  const Json& value = JsonField(object, name);
  if (value.is_null()) return absent;
  if (!value.is_boolean()) return RefuseJson(absl::StrCat(where, ".", name), value, "true or false");
  return value.get<bool>();
}

absl::StatusOr<int32_t> ParseTokenId(const Json& value, const std::string& where) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() >= static_cast<uint64_t>(kMaxIds)) {
    return RefuseJson(where, value, absl::StrCat("an integer from 0 to ", kMaxIds - 1));
  }
  return value.get<int32_t>();
}

}  // namespace kvm
