#include "kvm/io/tokenizer/tokenizer_json_steps.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tokenizer/patterns/oniguruma_pattern.h"
#include "kvm/io/tokenizer/tokenizer_json_fields.h"

namespace kvm {
namespace {

using Json = nlohmann::json;

// How GPT-2 cuts text: English contractions, letters, digits or other signs, each with at most one space before it; and
// runs of white space, which leave their last character to a word that follows.
constexpr absl::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The steps of a Sequence, or the value alone as if it were one.
struct SequenceStep {
  const Json* value;
  std::string where;
};
absl::StatusOr<std::vector<SequenceStep>> Steps(const Json& value, const char* list, const std::string& where) {
  std::vector<SequenceStep> steps;
  ASSIGN_OR_RETURN(const std::string type, TypeOf(value, where));
  if (type != "Sequence") {
    steps.push_back({&value, where});
    return steps;
  }
  RETURN_IF_ERROR(RequireOff(value, {"type", list}, where + "."));
  const Json& values = JsonField(value, list);
  if (!values.is_array()) return RefuseJson(absl::StrCat(where, ".", list), values, "an array");
  for (size_t i = 0; i < values.size(); ++i) {
    steps.push_back({&values[i], absl::StrCat(where, ".", list, "[", i, "]")});
  }
  return steps;
}

absl::StatusOr<SplitBehavior> ParseBehavior(const Json& value, const std::string& where) {
  constexpr std::pair<const char*, SplitBehavior> kNames[] = {
      {"Isolated", SplitBehavior::kIsolated},
      {"Removed", SplitBehavior::kRemoved},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  };
  for (const auto& [name, behavior] : kNames) {
    if (value == name) return behavior;
  }
  return RefuseJson(where, value, "Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
}

absl::StatusOr<std::string> ParsePattern(const Json& value, const std::string& where) {
  if (value.is_object() && value.size() == 1 && value.begin().value().is_string()) {
    const std::string& text = value.begin().value().get_ref<const std::string&>();
    if (value.begin().key() == "String" && !text.empty()) return LiteralPattern(text);
    if (value.begin().key() == "Regex") {
      absl::StatusOr<std::string> pattern = TranslateOniguruma(text);
      if (pattern.ok()) return pattern;
      return absl::InvalidArgumentError(absl::StrCat(where, ".Regex ", Quoted(text), ": ", pattern.status().message()));
    }
  }
  return RefuseJson(where, value, "an object with Regex, or with String that is not empty");
}

absl::StatusOr<SplitStep> ParseSplit(const Json& value, const std::string& where) {
  RETURN_IF_ERROR(RequireOff(value, {"type", "pattern", "behavior", "invert"}, where + "."));
  SplitStep step;
  ASSIGN_OR_RETURN(step.pattern, ParsePattern(JsonField(value, "pattern"), where + ".pattern"));
  ASSIGN_OR_RETURN(step.behavior, ParseBehavior(JsonField(value, "behavior"), where + ".behavior"));
  ASSIGN_OR_RETURN(step.invert, BoolField(value, "invert", false, where));
  return step;
}

absl::StatusOr<SplitStep> ParseDigits(const Json& value, const std::string& where) {
  RETURN_IF_ERROR(RequireOff(value, {"type", "individual_digits"}, where + "."));
  ASSIGN_OR_RETURN(const bool individual, BoolField(value, "individual_digits", false, where));
  SplitStep step;
  step.pattern = R"(\p{N})";
  step.behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
  return step;
}

absl::Status ParseByteLevel(const Json& value, const std::string& where, std::vector<SplitStep>* steps) {
  RETURN_IF_ERROR(RequireOff(value, {"type", "add_prefix_space", "use_regex", "trim_offsets"}, where + "."));
  ASSIGN_OR_RETURN(const bool add_prefix_space, BoolField(value, "add_prefix_space", true, where));
  ASSIGN_OR_RETURN(const bool use_regex, BoolField(value, "use_regex", true, where));
  if (add_prefix_space) {
    SplitStep step;
    step.add_prefix_space = true;
    steps->push_back(step);
  }
  if (use_regex) {
    SplitStep step;
    ASSIGN_OR_RETURN(step.pattern, TranslateOniguruma(kByteLevelPattern));
    steps->push_back(step);
  }
  return absl::OkStatus();
}

// The ids of the special token that a template names.
absl::Status AppendTemplateToken(const Json& piece, const Json& specials, const std::string& where,
                                 const std::string& processor, std::vector<int32_t>* ids) {
  const Json& name = JsonField(piece, "id");
  if (!name.is_string()) return RefuseJson(where + ".SpecialToken.id", name, "a name");
  const Json& special = JsonField(specials, name.get_ref<const std::string&>().c_str());
  const std::string at = absl::StrCat(processor, ".special_tokens[", Quoted(name.get_ref<const std::string&>()), "]");
  if (!special.is_object()) return RefuseJson(at, special, "an object with ids");
  const Json& list = JsonField(special, "ids");
  if (!list.is_array()) return RefuseJson(at + ".ids", list, "an array");
  for (size_t i = 0; i < list.size(); ++i) {
    ASSIGN_OR_RETURN(const int32_t id, ParseTokenId(list[i], absl::StrCat(at, ".ids[", i, "]")));
    ids->push_back(id);
  }
  return absl::OkStatus();
}

absl::StatusOr<AroundText> ParseTemplate(const Json& value, const std::string& where) {
  RETURN_IF_ERROR(RequireOff(value, {"type", "single", "pair", "special_tokens"}, where + "."));
  const Json& pieces = JsonField(value, "single");
  if (!pieces.is_array()) return RefuseJson(where + ".single", pieces, "an array");
  const Json& specials = JsonField(value, "special_tokens");
  AroundText around;
  bool text = false;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::string at = absl::StrCat(where, ".single[", i, "]");
    const Json& piece = pieces[i];
    if (piece.is_object() && JsonField(piece, "SpecialToken").is_object() && specials.is_object()) {
      RETURN_IF_ERROR(AppendTemplateToken(JsonField(piece, "SpecialToken"), specials, at, where,
                                          text ? &around.after : &around.before));
    } else if (piece.is_object() && JsonField(piece, "Sequence").is_object() && !text &&
               JsonField(JsonField(piece, "Sequence"), "id") == "A") {
      text = true;
    } else {
      return RefuseJson(at, piece, "a SpecialToken of special_tokens, or once the Sequence A");
    }
  }
  if (!text) return RefuseJson(where + ".single", pieces, "the Sequence A in it");
  return around;
}

}  // namespace

absl::StatusOr<bool> ParseNormalizer(const Json& value, const std::string& where) {
  if (value.is_null()) return false;
  ASSIGN_OR_RETURN(const std::vector<SequenceStep> steps, Steps(value, "normalizers", where));
  for (const SequenceStep& step : steps) {
    RETURN_IF_ERROR(RequireType(*step.value, "NFC", step.where));
    RETURN_IF_ERROR(RequireOff(*step.value, {"type"}, step.where + "."));
  }
  return !steps.empty();
}

absl::StatusOr<std::vector<SplitStep>> ParsePreTokenizer(const Json& value, const std::string& where) {
  if (!value.is_object()) return RefuseJson(where, value, "an object of type ByteLevel or Sequence");
  ASSIGN_OR_RETURN(const std::vector<SequenceStep> steps, Steps(value, "pretokenizers", where));
  if (steps.empty()) return RefuseJson(where + ".pretokenizers", value["pretokenizers"], "ByteLevel as its last");
  std::vector<SplitStep> splits;
  for (const SequenceStep& step : steps) {
    if (&step == &steps.back()) {
      RETURN_IF_ERROR(RequireType(*step.value, "ByteLevel", step.where));
      RETURN_IF_ERROR(ParseByteLevel(*step.value, step.where, &splits));
      break;
    }
    ASSIGN_OR_RETURN(const std::string type, TypeOf(*step.value, step.where));
    if (type == "Split") {
      ASSIGN_OR_RETURN(SplitStep split, ParseSplit(*step.value, step.where));
      splits.push_back(std::move(split));
    } else if (type == "Digits") {
      ASSIGN_OR_RETURN(SplitStep split, ParseDigits(*step.value, step.where));
      splits.push_back(std::move(split));
    } else {
      return RefuseJson(step.where + ".type", JsonField(*step.value, "type"),
                        "Split or Digits, and ByteLevel at the end");
    }
  }
  return splits;
}

absl::StatusOr<AroundText> ParsePostProcessor(const Json& value, const std::string& where) {
  AroundText around;
  if (value.is_null()) return around;
  ASSIGN_OR_RETURN(const std::vector<SequenceStep> steps, Steps(value, "processors", where));
  for (const SequenceStep& step : steps) {
    ASSIGN_OR_RETURN(const std::string type, TypeOf(*step.value, step.where));
    if (type == "ByteLevel") continue;  // concerns places in the text, which nobody asks for
    if (type != "TemplateProcessing") {
      return RefuseJson(step.where + ".type", JsonField(*step.value, "type"),
                        "ByteLevel, TemplateProcessing or Sequence");
    }
    ASSIGN_OR_RETURN(const AroundText outer, ParseTemplate(*step.value, step.where));
    around.before.insert(around.before.begin(), outer.before.begin(), outer.before.end());
    around.after.insert(around.after.end(), outer.after.begin(), outer.after.end());
  }
  return around;
}

absl::Status CheckDecoder(const Json& value, const std::string& where) {
  return value.is_null() ? absl::OkStatus() : RequireType(value, "ByteLevel", where);
}

}  // namespace kvm
