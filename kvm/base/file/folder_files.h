#ifndef KVM_BASE_FILE_FOLDER_FILES_H_
#define KVM_BASE_FILE_FOLDER_FILES_H_

// The names of a model folder's files.

namespace kvm {

inline constexpr char kStackFile[] = "stack.textproto";
inline constexpr char kConfigFile[] = "config.json";
inline constexpr char kWeightsFile[] = "model.safetensors";
inline constexpr char kIndexFile[] = "model.safetensors.index.json";
inline constexpr char kTokenizerJsonFile[] = "tokenizer.json";
inline constexpr char kGenerationConfigFile[] = "generation_config.json";

}  // namespace kvm

#endif  // KVM_BASE_FILE_FOLDER_FILES_H_
