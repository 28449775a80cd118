#include "kvm/io/tokenizer_json.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "kvm/io/strict_json.h"
#include "kvm/io/utf8.h"
#include "kvm/status_macros.h"

namespace kvm {
namespace {

using Json = nlohmann::json;

// Far above any vocabulary; keeps a mistaken id from asking for gigabytes.
constexpr int64_t kMaxIds = 1 << 22;

// A value for messages: short ones as they stand.
std::string Describe(const Json& value) {
  if (value.is_structured()) return absl::StrCat("an ", value.type_name());
  return value.is_string() ? Quoted(value.get_ref<const std::string&>()) : value.dump();
}

absl::Status Refuse(absl::string_view where, const Json& found, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(where, " is ", Describe(found), "; expected ", expected));
}

// The field, or null where there is none.
const Json& Field(const Json& object, const char* name) {
  static const Json* const kNull = new Json;
  const auto found = object.find(name);
  return found == object.end() ? *kNull : *found;
}

// A field that changes what a tokenizer does, and that is not done here, must be off: absent, null, false, 0 or empty.
absl::Status RequireOff(const Json& object, std::initializer_list<absl::string_view> known, const std::string& prefix) {
  for (const auto& [name, value] : object.items()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    if (value.is_null() || value == false || value == 0 || value == "") continue;
    return Refuse(absl::StrCat(prefix, name), value, "null, false or nothing: it is not supported");
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> BoolField(const Json& object, const char* name, bool absent, const std::string& where) {
  const Json& value = Field(object, name);
  if (value.is_null()) return absent;
  if (!value.is_boolean()) return Refuse(absl::StrCat(where, ".", name), value, "true or false");
  return value.get<bool>();
}

// Id of the vocabulary or of an added token.
absl::StatusOr<int32_t> ParseId(const Json& value, const std::string& where) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() >= static_cast<uint64_t>(kMaxIds)) {
    return Refuse(where, value, absl::StrCat("an integer from 0 to ", kMaxIds - 1));
  }
  return value.get<int32_t>();
}

// GPT-2 writes token bytes as characters: printable Latin-1 as itself, the other bytes, in order, as U+0100 and on.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    int32_t next = 0x100;
    for (int32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      bytes_[printable ? byte : next++] = byte;
    }
  }

  // The bytes that `text`, which is UTF-8, stands for; `text` itself when it has a character of no byte.
  std::string Decode(absl::string_view text) const {
    std::string bytes;
    for (size_t i = 0; i < text.size(); ++i) {
      uint32_t character = static_cast<uint8_t>(text[i]);
      if (character >= 0x80) {  // all of the alphabet has one or two bytes
        if (character >= 0xE0) return std::string(text);
        character = (character & 0x1F) << 6 | (static_cast<uint8_t>(text[++i]) & 0x3F);
      }
      const auto byte = bytes_.find(character);
      if (byte == bytes_.end()) return std::string(text);
      bytes.push_back(static_cast<char>(byte->second));
    }
    return bytes;
  }

 private:
  absl::flat_hash_map<uint32_t, int32_t> bytes_;  // by character
};

class Parser {
 public:
  explicit Parser(const std::string& source) : source_(source) {}

  absl::StatusOr<BpeSpec> Parse(const Json& root) {
    if (!root.is_object()) return Refuse(source_, root, "an object");
    RETURN_IF_ERROR(
        RequireOff(root, {"version", "added_tokens", "pre_tokenizer", "post_processor", "decoder", "model"}, At("")));
    RETURN_IF_ERROR(ParsePreTokenizer(Field(root, "pre_tokenizer")));
    for (const char* name : {"post_processor", "decoder"}) {
      const Json& value = Field(root, name);
      if (!value.is_null()) RETURN_IF_ERROR(RequireType(value, "ByteLevel", At(name)));
    }
    RETURN_IF_ERROR(ParseModel(Field(root, "model")));
    RETURN_IF_ERROR(ParseAddedTokens(Field(root, "added_tokens")));
    return std::move(spec_);
  }

 private:
  std::string At(absl::string_view field) const { return absl::StrCat(source_, ": ", field); }

  static absl::Status RequireType(const Json& value, absl::string_view type, const std::string& where) {
    if (!value.is_object()) return Refuse(where, value, absl::StrCat("an object of type ", type));
    if (Field(value, "type") != type) return Refuse(where + ".type", Field(value, "type"), Quoted(type));
    return absl::OkStatus();
  }

  absl::Status ParsePreTokenizer(const Json& value) {
    const std::string where = At("pre_tokenizer");
    RETURN_IF_ERROR(RequireType(value, "ByteLevel", where));
    RETURN_IF_ERROR(RequireOff(value, {"type", "add_prefix_space", "use_regex", "trim_offsets"}, where + "."));
    ASSIGN_OR_RETURN(spec_.add_prefix_space, BoolField(value, "add_prefix_space", true, where));
    ASSIGN_OR_RETURN(spec_.use_regex, BoolField(value, "use_regex", true, where));
    return absl::OkStatus();
  }

  absl::Status ParseModel(const Json& model) {
    const std::string where = At("model");
    if (!model.is_object()) return Refuse(where, model, "an object of type BPE");
    // Old files leave the type out. What becomes of unknown characters does not matter: every byte is known.
    if (model.contains("type")) RETURN_IF_ERROR(RequireType(model, "BPE", where));
    RETURN_IF_ERROR(RequireOff(model, {"type", "vocab", "merges", "unk_token", "fuse_unk"}, where + "."));
    RETURN_IF_ERROR(ParseVocabulary(Field(model, "vocab")));
    return ParseMerges(Field(model, "merges"));
  }

  // Gives `id`, which no token has yet, to a token of these bytes.
  absl::Status Claim(int32_t id, std::string bytes, const std::string& where) {
    const size_t size = static_cast<size_t>(id) + 1;
    if (size > spec_.token_bytes.size()) {
      spec_.token_bytes.resize(size);
      taken_.resize(size);
    }
    if (taken_[id]) return absl::InvalidArgumentError(absl::StrCat(where, " is ", id, ", which another token has"));
    taken_[id] = true;
    spec_.token_bytes[id] = std::move(bytes);
    return absl::OkStatus();
  }

  absl::Status ParseVocabulary(const Json& vocabulary) {
    if (!vocabulary.is_object() || vocabulary.empty()) {
      return Refuse(At("model.vocab"), vocabulary, "an object of tokens and their ids");
    }
    const ByteAlphabet alphabet;
    spec_.byte_ids.fill(-1);
    for (const auto& [token, value] : vocabulary.get_ref<const Json::object_t&>()) {
      const std::string where = absl::StrCat(source_, ": model.vocab[", Quoted(token), "]");
      ASSIGN_OR_RETURN(const int32_t id, ParseId(value, where));
      std::string bytes = alphabet.Decode(token);
      if (bytes.size() == 1) spec_.byte_ids[static_cast<uint8_t>(bytes[0])] = id;
      ids_[token] = id;
      RETURN_IF_ERROR(Claim(id, std::move(bytes), where));
    }
    const bool has_space = spec_.byte_ids[' '] >= 0;
    if (spec_.add_prefix_space && !has_space) {
      return absl::InvalidArgumentError(At("model.vocab lacks a space, which pre_tokenizer.add_prefix_space needs"));
    }
    return absl::OkStatus();
  }

  absl::Status ParseMerges(const Json& merges) {
    if (!merges.is_array()) return Refuse(At("model.merges"), merges, "an array");
    absl::flat_hash_set<std::pair<int32_t, int32_t>> pairs;
    for (size_t i = 0; i < merges.size(); ++i) {
      const std::string where = absl::StrCat(source_, ": model.merges[", i, "]");
      ASSIGN_OR_RETURN(const auto halves, ParseMerge(merges[i], where));
      ASSIGN_OR_RETURN(const int32_t left, FindToken(halves.first, where));
      ASSIGN_OR_RETURN(const int32_t right, FindToken(halves.second, where));
      ASSIGN_OR_RETURN(const int32_t merged, FindToken(absl::StrCat(halves.first, halves.second), where));
      if (!pairs.emplace(left, right).second) {
        return absl::InvalidArgumentError(
            absl::StrCat(where, " repeats an earlier merge of ", Quoted(halves.first), " and ", Quoted(halves.second)));
      }
      spec_.merges.push_back({left, right, merged});
    }
    return absl::OkStatus();
  }

  // "left right", or ["left", "right"].
  static absl::StatusOr<std::pair<absl::string_view, absl::string_view>> ParseMerge(const Json& value,
                                                                                    const std::string& where) {
    if (value.is_string()) {
      const absl::string_view text = value.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space != absl::string_view::npos && text.find(' ', space + 1) == absl::string_view::npos) {
        return std::make_pair(text.substr(0, space), text.substr(space + 1));
      }
    } else if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string()) {
      return std::make_pair(absl::string_view(value[0].get_ref<const std::string&>()),
                            absl::string_view(value[1].get_ref<const std::string&>()));
    }
    return Refuse(where, value, "two tokens with a space between them, or an array of two tokens");
  }

  absl::StatusOr<int32_t> FindToken(absl::string_view token, const std::string& where) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, " needs the token ", Quoted(token), ", which model.vocab lacks"));
    }
    return found->second;
  }

  absl::Status ParseAddedTokens(const Json& tokens) {
    if (tokens.is_null()) return absl::OkStatus();
    if (!tokens.is_array()) return Refuse(At("added_tokens"), tokens, "an array");
    for (size_t i = 0; i < tokens.size(); ++i) {
      RETURN_IF_ERROR(ParseAddedToken(tokens[i], absl::StrCat(source_, ": added_tokens[", i, "]")));
    }
    return absl::OkStatus();
  }

  absl::Status ParseAddedToken(const Json& token, const std::string& where) {
    if (!token.is_object()) return Refuse(where, token, "an object");
    RETURN_IF_ERROR(RequireOff(token, {"id", "content", "special", "normalized"}, where + "."));
    const Json& content = Field(token, "content");
    if (!content.is_string() || content == "") return Refuse(where + ".content", content, "text that is not empty");
    const std::string& text = content.get_ref<const std::string&>();
    ASSIGN_OR_RETURN(const int32_t id, ParseId(Field(token, "id"), where + ".id"));
    ASSIGN_OR_RETURN(const bool special, BoolField(token, "special", false, where));
    ASSIGN_OR_RETURN(const bool normalized, BoolField(token, "normalized", !special, where));
    if (!added_.insert(text).second) {
      return absl::InvalidArgumentError(absl::StrCat(where, ".content repeats ", Quoted(text)));
    }
    const auto known = ids_.find(text);
    if (known == ids_.end()) {
      RETURN_IF_ERROR(Claim(id, text, where + ".id"));
    } else if (known->second != id) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ".id is ", id, "; expected ", known->second, ", which model.vocab gives ", Quoted(text)));
    }
    spec_.token_bytes[id] = text;
    spec_.added_tokens.push_back({text, id, normalized});
    return absl::OkStatus();
  }

  const std::string& source_;
  BpeSpec spec_;
  std::vector<bool> taken_;                              // by id
  absl::flat_hash_map<absl::string_view, int32_t> ids_;  // of the vocabulary, whose strings outlive this
  absl::flat_hash_set<absl::string_view> added_;
};

}  // namespace

absl::StatusOr<BpeSpec> ParseTokenizerJson(absl::string_view json, const std::string& source) {
  ASSIGN_OR_RETURN(const Json root, ParseStrictJson(json, source));
  return Parser(source).Parse(root);
}

}  // namespace kvm
