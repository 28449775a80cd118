#ifndef KVM_IO_HUGGINGFACE_HUGGINGFACE_WRITER_H_
#define KVM_IO_HUGGINGFACE_HUGGINGFACE_WRITER_H_

// A StackSpec as Hugging Face config.json: the inverse of ParseHuggingFaceConfig.

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "kvm/model/stack/stack.pb.h"

namespace kvm {

// The text of a config.json that reads as `spec`; the names of its mixers become "main" and "alt", and ranks are left
// to the tensors. `fields` are the keys and JSON values of the file that the spec came from, if any: all are kept, and
// those that contradict the spec are replaced, in which case
// keys that say the same in other words (config_keys.h) are left out. InvalidArgument for a valid spec that the
// published form, one main mixer and an alternative one in every n-th layer that share most settings, cannot express,
// with what stands in the way; and for fields that are not JSON.
absl::StatusOr<std::string> FormatHuggingFaceConfig(const StackSpec& spec,
                                                    const std::map<std::string, std::string>& fields = {});

}  // namespace kvm

#endif  // KVM_IO_HUGGINGFACE_HUGGINGFACE_WRITER_H_
