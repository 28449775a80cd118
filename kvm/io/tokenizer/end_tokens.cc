#include "kvm/io/tokenizer/end_tokens.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/file/path_check.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/json/json_fields.h"
#include "kvm/io/json/strict_json.h"

namespace kvm {
namespace {

constexpr char kField[] = "eos_token_id";
constexpr absl::string_view kEndsOfTurn[] = {"<|im_end|>", "<|eot_id|>"};

absl::StatusOr<std::vector<int32_t>> TokensOf(const nlohmann::json& value, const std::string& source) {
  const nlohmann::json list = value.is_array()  ? value
                              : value.is_null() ? nlohmann::json::array()
                                                : nlohmann::json::array({value});
  std::vector<int32_t> tokens;
  for (const nlohmann::json& entry : list) {
    const bool is_id = entry.is_number_unsigned() && entry.get<uint64_t>() <= std::numeric_limits<int32_t>::max();
    if (!is_id) {
      return absl::InvalidArgumentError(absl::StrCat(source, ": ", kField, " is ", ShortJson(value),
                                                     "; expected null, a token id or a list of such"));
    }
    tokens.push_back(entry.get<int32_t>());
  }
  return JoinEndTokens(std::move(tokens), {});
}

absl::StatusOr<std::vector<int32_t>> TokensOfFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ASSIGN_OR_RETURN(const nlohmann::json object, ParseJsonObject(text, path));
  return TokensOf(object.value(kField, nlohmann::json()), path);
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ParseEndTokens(const std::string& json, const std::string& source) {
  ASSIGN_OR_RETURN(const nlohmann::json value, ParseStrictJson(json, source));
  return TokensOf(value, source);
}

std::vector<int32_t> ReadEndTokens(const std::map<std::string, std::string>& config,
                                   const std::string& generation_config, std::vector<std::string>* notes) {
  std::vector<int32_t> tokens;
  const auto add = [&](const absl::StatusOr<std::vector<int32_t>>& read) {
    if (read.ok()) {
      tokens = JoinEndTokens(std::move(tokens), *read);
    } else {
      notes->push_back(absl::StrCat(read.status().message(), ", so that it ends no text"));
    }
  };
  const auto field = config.find(kField);
  if (field != config.end()) add(ParseEndTokens(field->second, "config.json"));
  if (!generation_config.empty() && NameExists(generation_config)) add(TokensOfFile(generation_config));
  return tokens;
}

std::vector<int32_t> EndTokensOf(const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  if (tokenizer.end_of_text() >= 0) tokens.push_back(tokenizer.end_of_text());
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const absl::string_view bytes = tokenizer.TokenBytes(id);
    if (std::find(std::begin(kEndsOfTurn), std::end(kEndsOfTurn), bytes) != std::end(kEndsOfTurn)) {
      tokens.push_back(id);
    }
  }
  return JoinEndTokens(std::move(tokens), {});
}

std::vector<int32_t> JoinEndTokens(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end());
  a.erase(std::unique(a.begin(), a.end()), a.end());
  return a;
}

}  // namespace kvm
