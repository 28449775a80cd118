#ifndef KVM_IO_HUGGINGFACE_MIXER_CONFIG_H_
#define KVM_IO_HUGGINGFACE_MIXER_CONFIG_H_

// The mixers that config.json knows, one record each.

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "kvm/io/huggingface/config_settings.h"
#include "kvm/io/json/json_fields.h"
#include "kvm/model/stack/stack.pb.h"

namespace kvm {

struct MixerConfig {
  // In token_mixer and alt_token_mixer.
  const char* name = nullptr;
  // Whether a mixer of a valid spec is written under this name.
  bool (*is)(const MixerSpec& mixer) = nullptr;
  // Makes the kind's message in a mixer that has a name alone. `rope` is the prefix of the rotary keys of its layers.
  // Values that cannot be are problems of `fields`.
  void (*read)(const std::string& rope, JsonFields* fields, MixerSpec* mixer) = nullptr;
  // The keys that `read` reads; `width` is the stack's.
  void (*write)(const MixerSpec& mixer, const std::string& rope, int64_t width, ConfigSettings* settings) = nullptr;
};

// In the order in which messages list their names.
absl::Span<const MixerConfig> MixerConfigs();

// The one under whose name a mixer is written; null for a kind that config.json does not know.
const MixerConfig* FindMixerConfig(const MixerSpec& mixer);

// What asked for a setting, in words.
std::string Who(const MixerSpec& mixer);

}  // namespace kvm

#endif  // KVM_IO_HUGGINGFACE_MIXER_CONFIG_H_
