#include "kvm/io/model_folder.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/file/folder_files.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/file/path_check.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/huggingface/config_hint.h"
#include "kvm/io/huggingface/hub_cache.h"
#include "kvm/io/huggingface/huggingface.h"
#include "kvm/io/stack_file.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/io/tensors/sharded_weights.h"
#include "kvm/io/tokenizer/end_tokens.h"
#include "kvm/io/tokenizer/tokenizer_files.h"
#include "kvm/model/weights/parameters.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;

// Weights of other programs that folders come with: named when ours are missing.
constexpr const char* kForeignWeights[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth",
                                           "model.ckpt.index"};

std::string InFolder(const std::string& folder, const char* file) { return (fs::path(folder) / file).string(); }

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

absl::StatusOr<std::unique_ptr<WeightSource>> OpenWeights(const std::string& folder, std::vector<std::string>* notes) {
  const std::string weights = InFolder(folder, kWeightsFile);
  if (NameExists(weights)) {
    ASSIGN_OR_RETURN(std::unique_ptr<WeightSource> file, SafetensorsFile::Open(weights));
    return file;
  }
  const std::string index = InFolder(folder, kIndexFile);
  if (NameExists(index)) return OpenShardedWeights(folder, index, notes);
  std::string found;
  for (const char* file : kForeignWeights) {
    if (Exists(InFolder(folder, file))) found = absl::StrCat("; it has ", file, ", which is not read");
  }
  return absl::NotFoundError(
      absl::StrCat(folder, ": no weights, expected ", kWeightsFile, " or ", kIndexFile, " with its shards", found));
}

}  // namespace

absl::StatusOr<ModelFolder> OpenModelFolder(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string resolved, ResolveHubFolder(path));
  const std::string stack = InFolder(resolved, kStackFile);
  const std::string config = InFolder(resolved, kConfigFile);
  RETURN_IF_ERROR(CheckPathExists(resolved));
  const bool has_stack = NameExists(stack), has_config = NameExists(config);
  if (!IsFolder(resolved) || (!has_stack && !has_config)) {
    // A folder that may not be entered hides what it holds.
    const absl::Status seen = CheckPathExists(stack);
    if (absl::IsFailedPrecondition(seen)) return seen;
    return absl::NotFoundError(absl::StrCat(resolved, ": no model here, expected a folder that holds ", kStackFile,
                                            " or ", kConfigFile, ", and ", kWeightsFile));
  }
  if (has_stack && has_config) {
    return absl::InvalidArgumentError(
        absl::StrCat(resolved, ": holds both ", kStackFile, " and ", kConfigFile, ", expected one of them"));
  }

  ModelFolder folder;
  std::string hint;  // at what may be behind tensors that do not fit
  folder.path = resolved;
  if (has_stack) {
    ASSIGN_OR_RETURN(folder.spec, ReadStackFile(stack));
    ASSIGN_OR_RETURN(folder.weights, OpenWeights(resolved, &folder.notes));
  } else {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(config));
    ASSIGN_OR_RETURN(HuggingFaceConfig parsed, ParseHuggingFaceConfig(text, config));
    hint = ConfigHint(parsed);
    folder.spec = std::move(parsed.spec);
    folder.config = std::move(parsed.fields);
    folder.unused_config = std::move(parsed.unused);
    folder.notes = std::move(parsed.notes);
    ASSIGN_OR_RETURN(folder.weights, OpenWeights(resolved, &folder.notes));
    AdoptRanks(*folder.weights, &folder.spec);
    // There the flag speaks of files that lack a head.
    if (folder.weights->Find("lm_head.weight") != nullptr) folder.spec.set_tied_head(false);
  }
  const absl::Status fits = CheckWeights(folder.spec, *folder.weights);
  if (!fits.ok()) return absl::Status(fits.code(), absl::StrCat(fits.message(), hint));
  folder.tokenizer_path = FindTokenizerFile(resolved);
  folder.end_tokens = ReadEndTokens(folder.config, InFolder(resolved, kGenerationConfigFile), &folder.notes);
  return folder;
}

}  // namespace kvm
