#ifndef KVM_IO_HUGGINGFACE_CONFIG_KEYS_H_
#define KVM_IO_HUGGINGFACE_CONFIG_KEYS_H_

// The table of all keys of config.json, so that none passes in silence: what is read is in the spec, what asks for
// other arithmetic than is offered is refused, what has no effect is known as such, and the rest is said to be unknown.

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kvm/io/huggingface/config_key.h"
#include "kvm/io/json/json_fields.h"
#include "kvm/model/stack/stack.pb.h"
#include "nlohmann/json.hpp"

namespace kvm {

// Null for a key that nothing knows.
const ConfigKey* FindConfigKey(absl::string_view name);

// Problems of `fields`, whose object is `config`, for keys that ask for what is not computed. `spec` is what was read
// from it; null when that is not valid: then keys that restate others are not looked at.
void CheckConfigKeys(const nlohmann::json& config, const StackSpec* spec, JsonFields* fields);

// Keys of which nothing is computed, with their JSON values: those without effect and those that nothing knows.
std::map<std::string, std::string> UnusedConfigKeys(const nlohmann::json& config);

// What to tell the user of keys that nothing knows; they may be others misspelt.
std::vector<std::string> NotesOnUnknownKeys(const nlohmann::json& config);

// Whether a key says nothing that the keys that are read do not say as well: it may be left out where they are written.
bool IsRestatement(absl::string_view name);

}  // namespace kvm

#endif  // KVM_IO_HUGGINGFACE_CONFIG_KEYS_H_
