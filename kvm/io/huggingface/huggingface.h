#ifndef KVM_IO_HUGGINGFACE_HUGGINGFACE_H_
#define KVM_IO_HUGGINGFACE_HUGGINGFACE_H_

// Hugging Face config.json (model_type "rwkv7backbone") as a StackSpec.

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

struct HuggingFaceConfig {
  StackSpec spec;  // mixers "main" and "alt", as far as layers use them
  // Keys of which nothing is computed (config_keys.h), with their JSON values: kept.
  std::map<std::string, std::string> unused;
  std::vector<std::string> notes;  // on keys that nothing knows: worth showing to the user
  // All keys of the file, with their JSON values: what FormatHuggingFaceConfig needs to write the same file again.
  std::map<std::string, std::string> fields;
};

// Parses config.json. Absent and null fields have the published defaults. InvalidArgument, naming `source` and every
// field at fault, for text that is not JSON, unknown mixers or modes, wrong types, sizes that are zero, negative or do
// not divide, contradictory schedules, and keys that ask for arithmetic that is not offered, of which config_keys.h has
// a table. The spec passes ValidateStack.
absl::StatusOr<HuggingFaceConfig> ParseHuggingFaceConfig(absl::string_view json, const std::string& source);

// The ranks of low-rank matrices stand in no config: takes them from the tensors' shapes where these exist.
void AdoptRanks(const WeightSource& weights, StackSpec* spec, const MixerKinds& kinds = BuiltinMixerKinds());

}  // namespace kvm

#endif  // KVM_IO_HUGGINGFACE_HUGGINGFACE_H_
