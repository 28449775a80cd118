#ifndef KVM_IO_JSON_JSON_FIELDS_H_
#define KVM_IO_JSON_JSON_FIELDS_H_

// A JSON object read field by field: absent and null fields have defaults, and every field at fault is remembered.
//
//   ASSIGN_OR_RETURN(const nlohmann::json object, ParseJsonObject(text, path));
//   JsonFields fields(object);
//   const int64_t layers = fields.Whole("num_hidden_layers", 12);
//   RETURN_IF_ERROR(fields.Check(path));

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace kvm {

// InvalidArgument as ParseStrictJson, and for values that are no object.
absl::StatusOr<nlohmann::json> ParseJsonObject(absl::string_view text, const std::string& source);

// Thread-compatible.
class JsonFields {
 public:
  // `object` must outlive this.
  explicit JsonFields(const nlohmann::json& object) : object_(object) {}

  // Null when the field is absent or null.
  const nlohmann::json* Find(const std::string& key) const;

  // A field of a wrong type is a problem and reads as the default. A whole number that does not fit int32 reads as that
  // nearest to it: what a field may be is for its reader to say, and all ranges that readers have end before that.
  int32_t Whole(const std::string& key, int32_t default_value);
  std::optional<int32_t> OptionalWhole(const std::string& key);
  double Number(const std::string& key, double default_value);
  // true, false, 1 or 0.
  bool Flag(const std::string& key, bool default_value);
  std::string Text(const std::string& key, const std::string& default_value);

  // Remembers a problem, unless one with this field is known. Of a number that does not fit int32 it is what was got.
  void AddProblem(const std::string& key, const std::string& got, const std::string& expected);

  // Likewise, with the field's own value as what was got.
  void AddProblem(const std::string& key, const std::string& expected);

  // InvalidArgument that lists all problems.
  absl::Status Check(const std::string& source) const;

 private:
  const nlohmann::json& object_;
  std::vector<std::pair<std::string, std::string>> problems_;  // field and message
};

// A value as a message shows it: its JSON, cut short when long.
std::string ShortJson(const nlohmann::json& value);

}  // namespace kvm

#endif  // KVM_IO_JSON_JSON_FIELDS_H_
