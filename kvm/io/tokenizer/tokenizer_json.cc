#include "kvm/io/tokenizer/tokenizer_json.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/json/strict_json.h"
#include "kvm/io/tokenizer/bytes/byte_alphabet.h"
#include "kvm/io/tokenizer/patterns/unicode.h"
#include "kvm/io/tokenizer/tokenizer_json_fields.h"

namespace kvm {
namespace {

using Json = nlohmann::json;

// Ids without a token take memory as well: a file of N tokens may have ids up to this many times N beyond a constant.
constexpr size_t kIdsPerToken = 16;
constexpr size_t kSpareIds = 1 << 12;

class Parser {
 public:
  explicit Parser(const std::string& source) : source_(source) {}

  absl::StatusOr<BpeSpec> Parse(const Json& root) {
    if (!root.is_object()) return RefuseJson(source_, root, "an object");
    num_tokens_ = JsonField(JsonField(root, "model"), "vocab").size() + JsonField(root, "added_tokens").size();
    // "model" first: a file of another kind is best known by it.
    RETURN_IF_ERROR(ParseModel(JsonField(root, "model")));
    RETURN_IF_ERROR(RequireOff(root,
                               {"version", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder",
                                "model", "truncation", "padding"},
                               At("")));
    // Cutting and filling texts to a length is for those who put them into batches; many files have it from training.
    for (const char* field : {"truncation", "padding"}) {
      if (!JsonField(root, field).is_null()) spec_.notes.push_back(At(absl::StrCat(field, " is ignored")));
    }
    ASSIGN_OR_RETURN(spec_.nfc, ParseNormalizer(JsonField(root, "normalizer"), At("normalizer")));
    ASSIGN_OR_RETURN(spec_.splits, ParsePreTokenizer(JsonField(root, "pre_tokenizer"), At("pre_tokenizer")));
    ASSIGN_OR_RETURN(spec_.around, ParsePostProcessor(JsonField(root, "post_processor"), At("post_processor")));
    RETURN_IF_ERROR(CheckDecoder(JsonField(root, "decoder"), At("decoder")));
    RETURN_IF_ERROR(CheckPrefixSpace());
    RETURN_IF_ERROR(ParseAddedTokens(JsonField(root, "added_tokens")));
    RETURN_IF_ERROR(CheckAround());
    return std::move(spec_);
  }

 private:
  std::string At(absl::string_view field) const { return absl::StrCat(source_, ": ", field); }

  absl::Status CheckPrefixSpace() const {
    for (const SplitStep& step : spec_.splits) {
      if (step.add_prefix_space && spec_.byte_ids[' '] < 0) {
        return absl::InvalidArgumentError(At("model.vocab lacks a space, which add_prefix_space needs"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckAround() const {
    for (const auto* ids : {&spec_.around.before, &spec_.around.after}) {
      for (int32_t id : *ids) {
        if (id >= static_cast<int32_t>(taken_.size()) || !taken_[id]) {
          return absl::InvalidArgumentError(
              absl::StrCat(At("post_processor puts the id "), id, " around texts, which no token has"));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status ParseModel(const Json& model) {
    const std::string where = At("model");
    if (!model.is_object()) return RefuseJson(where, model, "an object of type BPE");
    // Old files leave the type out. What becomes of unknown characters does not matter: every byte is known.
    if (model.contains("type")) RETURN_IF_ERROR(RequireType(model, "BPE", where));
    RETURN_IF_ERROR(
        RequireOff(model, {"type", "vocab", "merges", "unk_token", "fuse_unk", "ignore_merges"}, where + "."));
    ASSIGN_OR_RETURN(const bool ignore_merges, BoolField(model, "ignore_merges", false, where));
    RETURN_IF_ERROR(ParseVocabulary(JsonField(model, "vocab"), ignore_merges));
    return ParseMerges(JsonField(model, "merges"));
  }

  // Gives `id`, which no token has yet, to a token of these bytes.
  absl::Status Claim(int32_t id, std::string bytes, const std::string& where) {
    const size_t size = static_cast<size_t>(id) + 1;
    const size_t max_size = kSpareIds + kIdsPerToken * num_tokens_;
    if (size > max_size) {
      return absl::InvalidArgumentError(absl::StrCat(where, " is ", id, "; expected at most ", max_size - 1,
                                                     " in a file of ", num_tokens_, " tokens"));
    }
    if (size > spec_.token_bytes.size()) {
      spec_.token_bytes.resize(size);
      taken_.resize(size);
    }
    if (taken_[id]) return absl::InvalidArgumentError(absl::StrCat(where, " is ", id, ", which another token has"));
    taken_[id] = true;
    spec_.token_bytes[id] = std::move(bytes);
    return absl::OkStatus();
  }

  absl::Status ParseVocabulary(const Json& vocabulary, bool whole_words) {
    if (!vocabulary.is_object() || vocabulary.empty()) {
      return RefuseJson(At("model.vocab"), vocabulary, "an object of tokens and their ids");
    }
    const ByteAlphabet alphabet;
    spec_.byte_ids.fill(-1);
    for (const auto& [token, value] : vocabulary.get_ref<const Json::object_t&>()) {
      const std::string where = absl::StrCat(source_, ": model.vocab[", Quoted(token), "]");
      ASSIGN_OR_RETURN(const int32_t id, ParseTokenId(value, where));
      std::string bytes;
      if (!alphabet.Decode(token, &bytes)) {
        bytes = token;
      } else {
        if (bytes.size() == 1) spec_.byte_ids[static_cast<uint8_t>(bytes[0])] = id;
        if (whole_words) spec_.whole_words[bytes] = id;
      }
      ids_[token] = id;
      RETURN_IF_ERROR(Claim(id, std::move(bytes), where));
    }
    return absl::OkStatus();
  }

  absl::Status ParseMerges(const Json& merges) {
    if (!merges.is_array()) return RefuseJson(At("model.merges"), merges, "an array");
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
    return RefuseJson(where, value, "two tokens with a space between them, or an array of two tokens");
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
    if (!tokens.is_array()) return RefuseJson(At("added_tokens"), tokens, "an array");
    for (size_t i = 0; i < tokens.size(); ++i) {
      RETURN_IF_ERROR(ParseAddedToken(tokens[i], absl::StrCat(source_, ": added_tokens[", i, "]")));
    }
    return absl::OkStatus();
  }

  absl::Status ParseAddedToken(const Json& token, const std::string& where) {
    if (!token.is_object()) return RefuseJson(where, token, "an object");
    RETURN_IF_ERROR(
        RequireOff(token, {"id", "content", "special", "normalized", "lstrip", "rstrip", "single_word"}, where + "."));
    const Json& content = JsonField(token, "content");
    if (!content.is_string() || content == "") return RefuseJson(where + ".content", content, "text that is not empty");
    const std::string& text = content.get_ref<const std::string&>();
    ASSIGN_OR_RETURN(const int32_t id, ParseTokenId(JsonField(token, "id"), where + ".id"));
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
    AddedToken added = {text, id};
    ASSIGN_OR_RETURN(added.left_strip, BoolField(token, "lstrip", false, where));
    ASSIGN_OR_RETURN(added.right_strip, BoolField(token, "rstrip", false, where));
    ASSIGN_OR_RETURN(added.single_word, BoolField(token, "single_word", false, where));
    if (normalized && spec_.nfc) added.content = ToNfc(text);
    (normalized ? spec_.late_tokens : spec_.early_tokens).push_back(std::move(added));
    return absl::OkStatus();
  }

  const std::string& source_;
  size_t num_tokens_ = 0;  // as far as the file has such fields
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
