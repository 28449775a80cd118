#ifndef KVM_IO_HUGGINGFACE_CONFIG_HINT_H_
#define KVM_IO_HUGGINGFACE_CONFIG_HINT_H_

// Why tensors may not be those that a config.json speaks of, for model_folder.cc alone.

#include <string>

#include "kvm/io/huggingface/huggingface.h"

namespace kvm {

// "; config.json has no num_hidden_layers (12 is taken); it has num_hidden_layer, which nothing reads; did you mean
// num_hidden_layers?": keys that decide which tensors there are and that are absent or null, with their defaults, and
// keys that look like such a one misspelt. Empty when there are none.
std::string ConfigHint(const HuggingFaceConfig& config);

}  // namespace kvm

#endif  // KVM_IO_HUGGINGFACE_CONFIG_HINT_H_
