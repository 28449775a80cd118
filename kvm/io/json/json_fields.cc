#include "kvm/io/json/json_fields.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/json/strict_json.h"

namespace kvm {
namespace {

using Json = nlohmann::json;

// The int32 nearest to a whole number.
int32_t Nearest(const Json& value) {
  constexpr int64_t kLowest = std::numeric_limits<int32_t>::min();
  constexpr int64_t kHighest = std::numeric_limits<int32_t>::max();
  // A parsed number is unsigned when it is not negative.
  if (value.is_number_unsigned()) return static_cast<int32_t>(std::min<uint64_t>(value.get<uint64_t>(), kHighest));
  return static_cast<int32_t>(std::max(value.get<int64_t>(), kLowest));
}

}  // namespace

std::string ShortJson(const Json& value) {
  constexpr size_t kLongest = 100;
  const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

absl::StatusOr<Json> ParseJsonObject(absl::string_view text, const std::string& source) {
  ASSIGN_OR_RETURN(Json value, ParseStrictJson(text, source));
  if (value.is_object()) return value;
  return absl::InvalidArgumentError(absl::StrCat(source, ": got ", ShortJson(value), ", expected a JSON object"));
}

const Json* JsonFields::Find(const std::string& key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

int32_t JsonFields::Whole(const std::string& key, int32_t default_value) {
  return OptionalWhole(key).value_or(default_value);
}

std::optional<int32_t> JsonFields::OptionalWhole(const std::string& key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_integer()) return Nearest(*value);
  AddProblem(key, "a whole number");
  return std::nullopt;
}

double JsonFields::Number(const std::string& key, double default_value) {
  const Json* value = Find(key);
  if (value == nullptr) return default_value;
  if (value->is_number()) return value->get<double>();
  AddProblem(key, "a number");
  return default_value;
}

bool JsonFields::Flag(const std::string& key, bool default_value) {
  const Json* value = Find(key);
  if (value == nullptr) return default_value;
  if (value->is_boolean()) return value->get<bool>();
  if (value->is_number_unsigned() && value->get<uint64_t>() <= 1) return value->get<uint64_t>() == 1;
  AddProblem(key, "true, false, 1 or 0");
  return default_value;
}

std::string JsonFields::Text(const std::string& key, const std::string& default_value) {
  const Json* value = Find(key);
  if (value == nullptr) return default_value;
  if (value->is_string()) return value->get<std::string>();
  AddProblem(key, "a string");
  return default_value;
}

void JsonFields::AddProblem(const std::string& key, const std::string& got, const std::string& expected) {
  for (const auto& problem : problems_) {
    if (problem.first == key) return;
  }
  const Json* value = Find(key);
  const bool is_far = value != nullptr && value->is_number_integer() && *value != Nearest(*value);
  problems_.emplace_back(key, absl::StrCat(key, ": got ", is_far ? ShortJson(*value) : got, ", expected ", expected));
}

void JsonFields::AddProblem(const std::string& key, const std::string& expected) {
  const Json* value = Find(key);
  AddProblem(key, value == nullptr ? "nothing" : ShortJson(*value), expected);
}

absl::Status JsonFields::Check(const std::string& source) const {
  if (problems_.empty()) return absl::OkStatus();
  const auto message = [](std::string* out, const std::pair<std::string, std::string>& problem) {
    out->append(problem.second);
  };
  return absl::InvalidArgumentError(absl::StrCat(source, ": ", absl::StrJoin(problems_, "; ", message)));
}

}  // namespace kvm
