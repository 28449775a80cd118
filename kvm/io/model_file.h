#ifndef KVM_IO_MODEL_FILE_H_
#define KVM_IO_MODEL_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/io/model_folder.h"

namespace kvm {

enum class ModelKind { kFolder, kPacked, kSafetensors, kRwkvCheckpoint };

// "model folder", "packed model", "safetensors model" or "RWKV-7 checkpoint".
absl::string_view Name(ModelKind kind);

// Every form of a model on disk behind one call: a folder (model_folder.h), a packed model, a safetensors file that
// names its stack in its metadata or lies in a folder beside its spec, an official RWKV-7 checkpoint (.pth, or
// safetensors with its names). What a file is, its first bytes say, whatever it is called. Errors as those of the form;
// InvalidArgument that says what a file is when it is no model.
struct OpenedModel {
  ModelFolder model;
  ModelKind kind = ModelKind::kFolder;
  // What a packed model says that ModelFingerprint of it is, by the rule of its version; the other forms say nothing.
  std::optional<uint64_t> fingerprint;
};
absl::StatusOr<OpenedModel> OpenModel(const std::string& path);

// The files that OpenModel and FindModelTokenizer would read for `path`, whether they are there or not: what must not
// be written while, or because, the model is read. Some may be named twice.
std::vector<std::string> FilesOfModel(const std::string& path);

// The tokenizer of the model at `path`, which is not opened: the one in its folder; of a model that is one file that
// with the file's own name (TokenizersBeside), or else the one in the folder where it lies. Empty when there is none.
std::string FindModelTokenizer(const std::string& path);

}  // namespace kvm

#endif  // KVM_IO_MODEL_FILE_H_
