#include "kvm/io/model_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/file/file_kind.h"
#include "kvm/base/file/folder_files.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/file/path_check.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/huggingface/hub_cache.h"
#include "kvm/io/json/json_fields.h"
#include "kvm/io/model_writer.h"
#include "kvm/io/tensors/packed_file.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/io/tokenizer/end_tokens.h"
#include "kvm/io/tokenizer/tokenizer_files.h"
#include "kvm/io/torch/rwkv_checkpoint.h"
#include "kvm/io/torch/torch_file.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/parameters.h"

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
  opened.kind = ModelKind::kPacked;
  opened.fingerprint = packed.fingerprint;
  opened.model.path = path;
  opened.model.spec = std::move(packed.spec);
  opened.model.weights = std::move(packed.weights);
  opened.model.config = std::move(packed.config);
  opened.model.end_tokens = ReadEndTokens(opened.model.config, "", &opened.model.notes);
  opened.model.tokenizer_path = FindModelTokenizer(path);
  return opened;
}

// A file with the tensors of an official RWKV-7 checkpoint, whose names and shapes say what stack they belong to.
absl::StatusOr<OpenedModel> OpenRwkv(const std::string& path, std::shared_ptr<const WeightSource> tensors) {
  ASSIGN_OR_RETURN(RwkvCheckpoint checkpoint, ReadRwkvCheckpoint(std::move(tensors)));
  OpenedModel opened;
  opened.kind = ModelKind::kRwkvCheckpoint;
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
      path, ": a PyTorch checkpoint, of which only those of RWKV-7 are read alone; ", DescribeForeignNames(*file)));
}

absl::StatusOr<OpenedModel> OpenSafetensors(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(path));
  OpenedModel opened;
  opened.kind = ModelKind::kSafetensors;
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
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": tensors without a stack; expected a file that `kvm convert` made, an RWKV-7 checkpoint, or ",
        kWeightsFile, " in a folder with ", kConfigFile, "; ", DescribeForeignNames(*file)));
  }
  ASSIGN_OR_RETURN(opened.model.spec, ParseStackSpec(stack->second, absl::StrCat(path, ": ", kStackMetadata)));
  const auto config = file->metadata().find(kConfigMetadata);
  if (config != file->metadata().end()) {
    ASSIGN_OR_RETURN(const nlohmann::json fields,
                     ParseJsonObject(config->second, absl::StrCat(path, ": ", kConfigMetadata)));
    for (const auto& [key, value] : fields.items()) opened.model.config[key] = value.dump();
    opened.model.end_tokens = ReadEndTokens(opened.model.config, "", &opened.model.notes);
  }
  RETURN_IF_ERROR(CheckWeights(opened.model.spec, *file));
  opened.model.weights = std::move(file);
  opened.model.tokenizer_path = FindModelTokenizer(path);
  return opened;
}

// What a file is that is no model.
std::string DescribeStart(absl::string_view start) {
  const std::string known = LooksLike(start);
  return known.empty() && start.size() < kFileKindBytes ? absl::StrCat("; it has only ", start.size(), " bytes")
                                                        : known;
}

std::vector<std::string> FilesOfFolder(const std::string& folder) {
  std::vector<std::string> names = {kStackFile, kConfigFile,        kWeightsFile,
                                    kIndexFile, kTokenizerJsonFile, kGenerationConfigFile};
  const absl::StatusOr<std::string> index = ReadFile((fs::path(folder) / kIndexFile).string());
  if (index.ok()) {
    const absl::StatusOr<nlohmann::json> parsed = ParseJsonObject(*index, kIndexFile);
    // One that is broken makes no model.
    const nlohmann::json map = parsed.ok() ? parsed->value("weight_map", nlohmann::json()) : nlohmann::json();
    for (const nlohmann::json& shard : map) {
      if (shard.is_string()) names.push_back(shard.get<std::string>());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::vector<std::string> files;
  for (const std::string& name : names) files.push_back((fs::path(folder) / name).string());
  const std::string tokenizer = FindTokenizerFile(folder);
  if (!tokenizer.empty()) files.push_back(tokenizer);
  return files;
}

}  // namespace

absl::string_view Name(ModelKind kind) {
  switch (kind) {
    case ModelKind::kFolder:
      return "model folder";
    case ModelKind::kPacked:
      return "packed model";
    case ModelKind::kSafetensors:
      return "safetensors model";
    case ModelKind::kRwkvCheckpoint:
      return "RWKV-7 checkpoint";
  }
  return "";
}

absl::StatusOr<OpenedModel> OpenModel(const std::string& path) {
  RETURN_IF_ERROR(CheckPathExists(path));
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    if (!fs::is_directory(path, error)) {
      return absl::FailedPreconditionError(absl::StrCat(path, ": neither a file nor a folder; expected a model"));
    }
    OpenedModel opened;
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
                   DescribeStart(start)));
}

std::vector<std::string> FilesOfModel(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const absl::StatusOr<std::string> resolved = ResolveHubFolder(path);
    return resolved.ok() ? FilesOfFolder(*resolved) : std::vector<std::string>();
  }
  std::vector<std::string> files = TokenizersBeside(path);
  files.push_back(path);
  const fs::path parent = fs::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (fs::path(path).filename() == kWeightsFile) {  // may mean the folder
    const std::vector<std::string> beside = FilesOfFolder(folder);
    files.insert(files.end(), beside.begin(), beside.end());
  } else {
    const std::string tokenizer = FindModelTokenizer(path);
    if (!tokenizer.empty()) files.push_back(tokenizer);
  }
  return files;
}

std::string FindModelTokenizer(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    const absl::StatusOr<std::string> folder = ResolveHubFolder(path);
    return folder.ok() ? FindTokenizerFile(*folder) : "";
  }
  for (const std::string& tokenizer : TokenizersBeside(path)) {
    if (NameExists(tokenizer)) return tokenizer;
  }
  const fs::path folder = fs::path(path).parent_path();
  return FindTokenizerFile(folder.empty() ? "." : folder.string());
}

}  // namespace kvm
