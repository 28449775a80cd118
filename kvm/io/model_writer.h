#ifndef KVM_IO_MODEL_WRITER_H_
#define KVM_IO_MODEL_WRITER_H_

// Writing models: as a folder of ours, a Hugging Face folder, or one file.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kvm/kernels/dtype.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

enum class FolderForm {
  kStack,        // stack.textproto, which holds any stack
  kHuggingFace,  // config.json, which other programs read
};

struct ModelWriteOptions {
  std::optional<DType> dtype;  // of the tensors: kF32, kBF16, kF16, in packed models kI8; without one as they are
  int64_t max_shard_bytes = 5'000'000'000;  // of a folder's files
  std::map<std::string, std::string>
      config;                       // fields of the config.json that the model came with (ModelFolder::config)
  std::vector<int32_t> end_tokens;  // ModelFolder::end_tokens: kept where the form has a place for them
  std::string tokenizer_path;       // copied beside the model unless it is empty
  bool replace = false;             // a file that is where a model of one file, or its tokenizer, goes
  std::function<bool()> cancelled;  // asked between pieces of work: true ends it with Cancelled. May be empty
};

// Writes a model into `path`, which is made if need be and must not hold one yet (AlreadyExists). The spec file comes
// last, so that a folder without it is no model: either all files appear or an error comes back and none does.
// InvalidArgument as ValidateStack, CheckWeights and, for the Hugging Face form, FormatHuggingFaceConfig. Weights that
// are damaged (WeightSource::CheckContents) are not written, in whatever form.
absl::Status WriteModelFolder(const std::string& path, const StackSpec& spec, const WeightSource& weights,
                              FolderForm form, const ModelWriteOptions& options);

// The keys of a safetensors file's metadata under which a model's stack (text format) and config fields (one JSON
// object) stand.
inline constexpr char kStackMetadata[] = "kvm.stack";
inline constexpr char kConfigMetadata[] = "kvm.config";

// Writes a model as one safetensors file that says what it is. The tokenizer goes beside it (TokenizersBeside).
// Without options.replace AlreadyExists when `path` or the tokenizer's copy is there.
absl::Status WriteModelSafetensors(const std::string& path, const StackSpec& spec, const WeightSource& weights,
                                   const ModelWriteOptions& options);

// Writes a packed model (packed_file.h), likewise.
absl::Status WriteModelPacked(const std::string& path, const StackSpec& spec, const WeightSource& weights,
                              const ModelWriteOptions& options);

// Writes an official RWKV-7 checkpoint (rwkv_checkpoint.h), likewise; its spec and config are what its tensors say.
absl::Status WriteModelRwkv(const std::string& path, const StackSpec& spec, const WeightSource& weights,
                            const ModelWriteOptions& options);

// Where the tokenizer of a model that is one file may be: "m.tokenizer.json" or "m.rwkv_vocab.txt" for "m.kvm".
std::vector<std::string> TokenizersBeside(const std::string& model_path);

}  // namespace kvm

#endif  // KVM_IO_MODEL_WRITER_H_
