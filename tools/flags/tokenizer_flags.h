#ifndef KVM_TOOLS_FLAGS_TOKENIZER_FLAGS_H_
#define KVM_TOOLS_FLAGS_TOKENIZER_FLAGS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kvm/io/tokenizer/tokenizer.h"
#include "tools/cli/console.h"
#include "tools/cli/flag_set.h"

namespace kvm {

struct TokenizerFlags {
  std::string tokenizer;
  std::string model;
};

// Adds --tokenizer and --model.
void DefineTokenizerFlags(FlagSet& flags, TokenizerFlags* values);

// OpenTokenizer, and its notes on console.err.
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizerWithNotes(const std::string& path, Console& console);

// Says on console.err what is wrong with a model's tokenizer, for commands that do not need it. "" is fine.
void NoteBrokenTokenizer(const std::string& path, Console& console);

// Loads the tokenizer that --tokenizer names, or the one in the folder that --model names; its notes go to console.err.
// Ctrl-C ends the process meanwhile.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const FlagSet& flags, const TokenizerFlags& values,
                                                         Console& console);

}  // namespace kvm

#endif  // KVM_TOOLS_FLAGS_TOKENIZER_FLAGS_H_
