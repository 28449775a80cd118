#ifndef KVM_IO_MODEL_FOLDER_H_
#define KVM_IO_MODEL_FOLDER_H_

// A model on disk: stack.textproto (ours) or config.json (Hugging Face), model.safetensors, perhaps tokenizer.json.

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/kernels/dtype.h"
#include "kvm/model/stack.pb.h"
#include "kvm/model/weight_source.h"

namespace kvm {

struct ModelFolder {
  std::string path;
  StackSpec spec;
  std::unique_ptr<WeightSource> weights;             // exactly the spec's parameters (CheckWeights)
  std::map<std::string, std::string> unused_config;  // see HuggingFaceConfig
  std::string tokenizer_path;                        // empty when there is none
};

// Opens a folder and checks it whole: nothing is allocated for a model that does not fit its spec. Errors name the file
// at fault: NotFound for a path without a model, InvalidArgument for a folder with both kinds of spec, for broken
// files, and for missing, unexpected and mis-shaped tensors (all listed). A config.json that ties the head
// to the embedding does so only for files that lack lm_head.weight.
absl::StatusOr<ModelFolder> OpenModelFolder(const std::string& path);

// Writes stack.textproto and model.safetensors (tensors as `dtype`: kF32 or kBF16) into `path`, which is made if need
// be and must not hold a model yet (AlreadyExists); copies `tokenizer_path` beside them unless it is empty. The spec
// file comes last, so that a folder without it is no model: either all files appear or an error comes back and none
// does.
absl::Status WriteModelFolder(const std::string& path, const StackSpec& spec, const WeightSource& weights, DType dtype,
                              const std::string& tokenizer_path);

}  // namespace kvm

#endif  // KVM_IO_MODEL_FOLDER_H_
