#ifndef KVM_IO_TOKENIZER_END_TOKENS_H_
#define KVM_IO_TOKENIZER_END_TOKENS_H_

// The tokens at which a model's text, or its turn in a conversation, ends: what its config.json and
// generation_config.json say, and what its tokenizer calls so.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvm/io/tokenizer/tokenizer.h"

namespace kvm {

// The ids in the JSON value of an eos_token_id: a number, a list of numbers, or null for none. Ascending, each once.
// InvalidArgument, beginning with `source`, for anything else and for numbers that are no ids.
absl::StatusOr<std::vector<int32_t>> ParseEndTokens(const std::string& json, const std::string& source);

// The ids of `eos_token_id` in the fields of a config.json (ModelFolder::config) and in the generation_config.json at
// `generation_config`, where there is one; "" is none. What cannot be read there ends no text: it is noted.
std::vector<int32_t> ReadEndTokens(const std::map<std::string, std::string>& config,
                                   const std::string& generation_config, std::vector<std::string>* notes);

// The tokenizer's end of text, and the tokens that end a turn in the templates of chat models: <|im_end|>, <|eot_id|>.
std::vector<int32_t> EndTokensOf(const Tokenizer& tokenizer);

// Both, ascending, each once.
std::vector<int32_t> JoinEndTokens(std::vector<int32_t> a, const std::vector<int32_t>& b);

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_END_TOKENS_H_
