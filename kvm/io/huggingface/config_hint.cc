#include "kvm/io/huggingface/config_hint.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/base/nearest_name.h"

namespace kvm {
namespace {

bool IsAbsent(const HuggingFaceConfig& config, const std::string& key) {
  const auto found = config.fields.find(key);
  return found == config.fields.end() || found->second == "null";
}

}  // namespace

std::string ConfigHint(const HuggingFaceConfig& config) {
  const std::pair<std::string, std::string> expected[] = {
      {"vocab_size", absl::StrCat(config.spec.vocab_size())},
      {"hidden_size", absl::StrCat(config.spec.width())},
      {"num_hidden_layers", absl::StrCat(config.spec.layers_size())},
      {"num_attention_heads", "6"},
      {"token_mixer", "rwkv7"},
  };
  std::vector<std::string> absent, defaults;
  for (const auto& [key, taken] : expected) {
    if (!IsAbsent(config, key)) continue;
    absent.push_back(key);
    defaults.push_back(absl::StrCat(key, " (", taken, " is taken)"));
  }
  std::string hint;
  if (!defaults.empty()) hint = absl::StrCat("; config.json has no ", absl::StrJoin(defaults, ", "));
  // These are absent from many a sound config.
  for (const char* key : {"ffn_expansion", "alt_layer_every", "alt_token_mixer", "num_key_value_heads", "d_head"}) {
    if (IsAbsent(config, key)) absent.push_back(key);
  }
  for (const auto& [key, value] : config.unused) {
    const std::string nearest = DidYouMean(key, absent, "");
    if (!nearest.empty()) absl::StrAppend(&hint, "; config.json has ", key, ", which nothing reads", nearest);
  }
  return hint;
}

}  // namespace kvm
