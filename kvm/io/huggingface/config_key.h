#ifndef KVM_IO_HUGGINGFACE_CONFIG_KEY_H_
#define KVM_IO_HUGGINGFACE_CONFIG_KEY_H_

// What becomes of a key of config.json. Each part of a stack states its keys as an array of these; config_keys.h joins
// them.

#include <optional>

#include "absl/strings/string_view.h"
#include "kvm/model/stack/stack.pb.h"

namespace kvm {

enum class ConfigKeyUse {
  kRead,      // some reader takes its value
  kRestates,  // says in other words what keys that are read say already, and must agree with them
  kFixed,     // asks for arithmetic of which only some forms are offered
  kNoEffect,  // changes nothing that is computed
};

struct ConfigKey {
  absl::string_view name;  // one that ends in '*' stands for all that begin so
  ConfigKeyUse use = ConfigKeyUse::kRead;
  // Of kFixed: what it may be besides null, as a JSON array.
  absl::string_view values = {};
  // Of kRestates: what it has to be, or nothing where no layer has such a thing.
  std::optional<double> (*restated)(const StackSpec& spec) = nullptr;
};

}  // namespace kvm

#endif  // KVM_IO_HUGGINGFACE_CONFIG_KEY_H_
