#ifndef KVM_IO_MODEL_FOLDER_H_
#define KVM_IO_MODEL_FOLDER_H_

// A model on disk: stack.textproto (ours) or config.json (Hugging Face), model.safetensors or shards with an index,
// perhaps a tokenizer and a
// generation_config.json, of which the tokens that end a text are read.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

struct ModelFolder {
  std::string path;
  StackSpec spec;
  std::unique_ptr<WeightSource> weights;             // exactly the spec's parameters (CheckWeights)
  std::map<std::string, std::string> config;         // all fields of config.json (HuggingFaceConfig::fields)
  std::map<std::string, std::string> unused_config;  // see HuggingFaceConfig
  std::string tokenizer_path;                        // empty when there is none
  std::vector<int32_t> end_tokens;                   // of config.json and generation_config.json (end_tokens.h)
  std::vector<std::string> notes;                    // what is odd but harmless: worth showing to the user
};

// Opens a folder and checks it whole: nothing is allocated for a model that does not fit its spec. `path` may be a
// folder of a hub's cache (ResolveHubFolder). Errors name the file at fault: NotFound for a path without a model,
// FailedPrecondition for broken links and files that cannot be read, InvalidArgument for a folder with both kinds of
// spec, for broken files, and for missing, unexpected and mis-shaped tensors (all listed). A config.json that ties the
// head to the embedding does so only for files that lack lm_head.weight.
absl::StatusOr<ModelFolder> OpenModelFolder(const std::string& path);

}  // namespace kvm

#endif  // KVM_IO_MODEL_FOLDER_H_
