#include "tools/tokenize_command.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tokenizer/token_shards.h"
#include "kvm/io/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"
#include "tools/cli/command_status.h"
#include "tools/cli/flag_set.h"
#include "tools/cli/format.h"
#include "tools/cli/output_paths.h"
#include "tools/cli/text_input.h"
#include "tools/flags/tokenizer_flags.h"

namespace kvm {
namespace {

// A name for what ReadTextInput reads, which may be nothing that has one.
std::string InputPath(const std::string& text_file, const Console& console) {
  if (text_file != "-") return text_file;
  return console.in_descriptor < 0 ? "" : absl::StrCat("/proc/self/fd/", console.in_descriptor);
}

struct TokenizeFlags {
  TokenizerFlags tokenizer;
  std::string text;
  std::string text_file = "-";
  bool put_template = false;
};

// The ids of the text. Ctrl-C ends the process meanwhile.
absl::StatusOr<std::vector<int32_t>> EncodeInput(const FlagSet& flags, const TokenizeFlags& values, Console& console) {
  const AbandonableStep encoding(console);
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(flags, values.tokenizer, console));
  std::string text = values.text;
  if (!flags.IsSet("text")) {
    ASSIGN_OR_RETURN(text, ReadTextInput(values.text_file, console));
  }
  absl::StatusOr<std::vector<int32_t>> ids = tokenizer->Encode(text);
  if (!ids.ok()) {
    const std::string file = values.text_file == "-" ? "standard input" : values.text_file;
    return absl::Status(ids.status().code(),
                        absl::StrCat(flags.IsSet("text") ? "--text" : file, ": ", ids.status().message()));
  }
  if (console.interrupted()) return Interrupted();
  if (values.put_template) {
    ids->insert(ids->begin(), tokenizer->ids_before_text().begin(), tokenizer->ids_before_text().end());
    ids->insert(ids->end(), tokenizer->ids_after_text().begin(), tokenizer->ids_after_text().end());
  }
  return ids;
}

absl::Status RunTokenize(absl::Span<const std::string> args, Console& console) {
  FlagSet flags(
      "tokenize",
      "(--tokenizer=FILE | --model=DIR) [--text=TEXT | --text-file=FILE] [--template] [--json] [--shards=OUT]",
      "Turns text into token ids; special tokens in it are recognized. Reads standard input without --text\n"
      "and --text-file. With --shards the ids go into a file for training (the llm.c format) instead.");
  TokenizeFlags values;
  std::string shards;
  bool json = false, force = false;
  DefineTokenizerFlags(flags, &values.tokenizer);
  flags.Text("text", &values.text, "the text");
  flags.String("text-file", &values.text_file, "FILE", "a file with the text; - is standard input");
  flags.Bool("template", &values.put_template, "put the ids around the text that the tokenizer's file asks for");
  flags.Bool("json", &json, "print {\"ids\": [...]}");
  flags.String("shards", &shards, "OUT", "write a token file for training and print nothing but its size");
  DefineForceFlag(flags, &force);
  RETURN_IF_ERROR(flags.Parse(args));
  if (flags.IsSet("text") && flags.IsSet("text-file")) return flags.Wrong("give --text or --text-file, not both");
  if (!shards.empty()) {
    const bool is_input = !flags.IsSet("text") && IsSameFile(shards, InputPath(values.text_file, console));
    const std::string& tokenizer = values.tokenizer.tokenizer;
    const bool is_tokenizer = !tokenizer.empty() && IsSameFile(shards, tokenizer);
    if (is_input || is_tokenizer) {
      return flags.Wrong(absl::StrCat("--shards=", shards, " is the ", is_input ? "text" : "tokenizer",
                                      " itself; expected another file"));
    }
    RETURN_IF_ERROR(CheckNotOfModel(flags, "shards", shards, values.tokenizer.model));
    // Found out now rather than after the work.
    RETURN_IF_ERROR(CheckOutput(shards, OutputKind::kTokenShard, force));
  }

  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, EncodeInput(flags, values, console));
  if (!shards.empty()) {
    RETURN_IF_ERROR(WriteTokenShard(shards, ids));
    console.err << shards << ": " << FormatCount(static_cast<int64_t>(ids.size())) << " tokens" << std::endl;
  } else if (json) {
    console.out << nlohmann::json{{"ids", ids}}.dump() << "\n";
  } else {
    console.out << absl::StrJoin(ids, " ") << "\n";
  }
  return absl::OkStatus();
}

// Ids separated by spaces, commas or line ends, perhaps in the brackets of a JSON list.
absl::StatusOr<std::vector<int32_t>> ParseIds(absl::string_view text) {
  std::vector<int32_t> ids;
  for (absl::string_view part : absl::StrSplit(text, absl::ByAnyChar(" ,\t\r\n[]"), absl::SkipEmpty())) {
    int32_t id;
    if (!absl::SimpleAtoi(part, &id)) {
      return absl::InvalidArgumentError(absl::StrCat("token id ", ids.size(), " is '", Printable(part),
                                                     "'; expected integers, separated by spaces or commas"));
    }
    ids.push_back(id);
  }
  return ids;
}

absl::Status RunDetokenize(absl::Span<const std::string> args, Console& console) {
  FlagSet flags("detokenize", "(--tokenizer=FILE | --model=DIR) [--ids=1,2,3 | 1 2 3] [--json]",
                "Turns token ids into text, byte for byte. Reads the ids from standard input when none are given.");
  TokenizerFlags tokenizer_flags;
  std::string ids_text;
  std::vector<std::string> positionals;
  bool json = false;
  DefineTokenizerFlags(flags, &tokenizer_flags);
  flags.String("ids", &ids_text, "N,N,...", "the ids");
  flags.Bool("json", &json, "print {\"text\": \"...\"}");
  flags.Positionals(&positionals);
  RETURN_IF_ERROR(flags.Parse(args));
  if (flags.IsSet("ids") && !positionals.empty()) return flags.Wrong("give --ids or ids as arguments, not both");
  const AbandonableStep decoding(console);

  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(flags, tokenizer_flags, console));
  if (!positionals.empty()) {
    ids_text = absl::StrJoin(positionals, " ");
  } else if (!flags.IsSet("ids")) {
    ASSIGN_OR_RETURN(ids_text, ReadTextInput("-", console));
  }
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ParseIds(ids_text));
  ASSIGN_OR_RETURN(const std::string text, Decode(*tokenizer, ids));
  if (json) {
    // Ids may end inside a character.
    console.out << nlohmann::json{{"text", text}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                << "\n";
  } else {
    console.out << text;
  }
  return absl::OkStatus();
}

}  // namespace

Command TokenizeCommand() { return {"tokenize", "turns text into token ids", RunTokenize}; }

Command DetokenizeCommand() { return {"detokenize", "turns token ids into text", RunDetokenize}; }

}  // namespace kvm
