#include "kvm/io/model_file.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kvm/io/file_kind.h"
#include "kvm/io/folder_files.h"
#include "kvm/io/hub_cache.h"
#include "kvm/io/json_fields.h"
#include "kvm/io/model_writer.h"
#include "kvm/io/open_tokenizer.h"
#include "kvm/io/packed_file.h"
#include "kvm/io/rwkv_checkpoint.h"
#include "kvm/io/safetensors.h"
#include "kvm/io/torch_file.h"
#include "kvm/model/parameters.h"
#include "kvm/model/stack_spec.h"
#include "kvm/status_macros.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string FirstBytes(const std::string& path) {
  std::string bytes(kFileKindBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

absl::StatusOr<OpenedModel> OpenPacked(const std::string& path) {
  ASSIGN_OR_RETURN(PackedModel packed, OpenPackedModel(path));
  OpenedModel opened;
  opened.kind = "packed model";
  opened.fingerprint = packed.fingerprint;
  opened.model.path = path;
  opened.model.spec = std::move(packed.spec);
  opened.model.weights = std::move(packed.weights);
  opened.model.config = std::move(packed.config);
  opened.model.tokenizer_path = FindModelTokenizer(path);
  return opened;
}

// A file with the tensors of an official RWKV-7 checkpoint, whose names and shapes say what stack they belong to.
absl::StatusOr<OpenedModel> OpenRwkv(const std::string& path, std::shared_ptr<const WeightSource> tensors) {
  ASSIGN_OR_RETURN(RwkvCheckpoint checkpoint, ReadRwkvCheckpoint(std::move(tensors)));
  OpenedModel opened;
  opened.kind = "RWKV-7 checkpoint";
  opened.model.path = path;
  opened.model.spec = std::move(checkpoint.spec);
  opened.model.weights = std::move(checkpoint.weights);
  opened.model.tokenizer_path = FindModelTokenizer(path);
  return opened;
}

absl::StatusOr<OpenedModel> OpenTorch(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<TorchFile> file, TorchFile::Open(path));
  if (HasRwkvNames(*file)) return OpenRwkv(path, std::move(file));
  return absl::InvalidArgumentError(absl::StrCat(
      path,
      ": a PyTorch checkpoint whose tensors are not named as those of RWKV-7, the only ones that are read alone"));
}

absl::StatusOr<OpenedModel> OpenSafetensors(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(path));
  OpenedModel opened;
  opened.kind = "safetensors model";
  opened.model.path = path;
  const auto stack = file->metadata().find(kStackMetadata);
  if (stack == file->metadata().end()) {
    // A folder's file means the folder.
    const fs::path folder = fs::path(path).parent_path();
    const bool has_spec = Exists((folder / kStackFile).string()) || Exists((folder / kConfigFile).string());
    if (has_spec && fs::path(path).filename() == kWeightsFile) {
      ASSIGN_OR_RETURN(opened.model, OpenModelFolder(folder.empty() ? "." : folder.string()));
      return opened;
    }
    if (HasRwkvNames(*file)) return OpenRwkv(path, std::move(file));
    return absl::InvalidArgumentError(absl::StrCat(path,
                                                   ": tensors without a stack; expected a file that `kvm convert` "
                                                   "made, or ",
                                                   kWeightsFile, " in a folder with ", kConfigFile));
  }
  ASSIGN_OR_RETURN(opened.model.spec, ParseStackSpec(stack->second, absl::StrCat(path, ": ", kStackMetadata)));
  const auto config = file->metadata().find(kConfigMetadata);
  if (config != file->metadata().end()) {
    ASSIGN_OR_RETURN(const nlohmann::json fields,
                     ParseJsonObject(config->second, absl::StrCat(path, ": ", kConfigMetadata)));
    for (const auto& [key, value] : fields.items()) opened.model.config[key] = value.dump();
  }
  RETURN_IF_ERROR(CheckWeights(opened.model.spec, *file));
  opened.model.weights = std::move(file);
  opened.model.tokenizer_path = FindModelTokenizer(path);
  return opened;
}

}  // namespace

absl::StatusOr<OpenedModel> OpenModel(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    OpenedModel opened;
    opened.kind = "model folder";
    ASSIGN_OR_RETURN(opened.model, OpenModelFolder(path));
    return opened;
  }
  const std::string start = FirstBytes(path);
  switch (DetectFileKind(start)) {
    case FileKind::kPacked:
      return OpenPacked(path);
    case FileKind::kSafetensors:
      return OpenSafetensors(path);
    case FileKind::kZip:
    case FileKind::kPickle:
      return OpenTorch(path);
    default:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": not a model, expected a folder, a packed model, a safetensors file or a PyTorch checkpoint",
                   LooksLike(start)));
}

std::string FindModelTokenizer(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    const absl::StatusOr<std::string> folder = ResolveHubFolder(path);
    return folder.ok() ? FindTokenizerFile(*folder) : "";
  }
  for (const std::string& tokenizer : TokenizersBeside(path)) {
    if (Exists(tokenizer)) return tokenizer;
  }
  const fs::path folder = fs::path(path).parent_path();
  return FindTokenizerFile(folder.empty() ? "." : folder.string());
}

}  // namespace kvm
