#ifndef KVM_IO_HUGGINGFACE_BACKBONE_CONFIG_KEYS_H_
#define KVM_IO_HUGGINGFACE_BACKBONE_CONFIG_KEYS_H_

#include "absl/types/span.h"
#include "kvm/io/huggingface/config_key.h"

namespace kvm {

// The keys of config.json that no one mixer has for itself: of the stack around them, of what libraries write for
// themselves, and of arithmetic that other models have. For config_keys.cc alone.
absl::Span<const ConfigKey> BackboneConfigKeys();

}  // namespace kvm

#endif  // KVM_IO_HUGGINGFACE_BACKBONE_CONFIG_KEYS_H_
