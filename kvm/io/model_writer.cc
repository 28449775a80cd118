#include "kvm/io/model_writer.h"

#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/folder_files.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/file/path_check.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/huggingface/huggingface_writer.h"
#include "kvm/io/json/strict_json.h"
#include "kvm/io/tensors/packed_file.h"
#include "kvm/io/tensors/tensor_stream.h"
#include "kvm/io/tensors/weight_files.h"
#include "kvm/io/tokenizer/tokenizer_files.h"
#include "kvm/io/torch/rwkv_checkpoint.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/parameters.h"
#include "kvm/model/weights/quantized_weights.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;

constexpr char kEmbedding[] = "transformer.wte.weight";

std::string InFolder(const std::string& folder, const std::string& file) { return (fs::path(folder) / file).string(); }

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// What was made of a model that is being written: removed, the last first, unless it is finished.
class Unfinished {
 public:
  ~Unfinished() {
    std::error_code ignored;
    for (auto path = made_.rbegin(); path != made_.rend(); ++path) fs::remove(*path, ignored);
  }

  void Made(const std::string& path) { made_.push_back(path); }
  void Finish() { made_.clear(); }

 private:
  std::vector<std::string> made_;
};

// Makes a folder and those above it that are missing.
absl::Status MakeFolder(const std::string& path, Unfinished* unfinished) {
  if (IsFolder(path)) return absl::OkStatus();
  std::vector<fs::path> missing;
  for (fs::path part = path; !part.empty() && !Exists(part.string()); part = part.parent_path())
    missing.push_back(part);
  for (auto part = missing.rbegin(); part != missing.rend(); ++part) unfinished->Made(part->string());
  std::error_code error;
  fs::create_directories(path, error);
  if (!error && IsFolder(path)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": cannot make this folder: ", error ? error.message() : "something else is there"));
}

absl::Status CheckHoldsNoModel(const std::string& path) {
  for (const char* file : {kStackFile, kConfigFile, kWeightsFile, kIndexFile, kGenerationConfigFile}) {
    if (NameExists(InFolder(path, file))) {
      return absl::AlreadyExistsError(
          absl::StrCat(path, ": holds ", file, " already, expected a folder without model"));
    }
  }
  return absl::OkStatus();
}

absl::Status CopyTokenizer(const std::string& from, const std::string& to, bool replace, Unfinished* unfinished) {
  std::error_code ignored;
  if (fs::equivalent(from, to, ignored)) return absl::OkStatus();
  const bool is_there = Exists(to);
  if (is_there && !replace) return absl::AlreadyExistsError(absl::StrCat(to, ": exists already"));
  ASSIGN_OR_RETURN(const std::string text, ReadFile(from));
  RETURN_IF_ERROR(WriteFileAtomically(to, text));
  if (!is_there) unfinished->Made(to);
  return absl::OkStatus();
}

absl::Status CheckModel(const std::string& path, const StackSpec& spec, const WeightSource& weights,
                        const ModelWriteOptions& options, bool packed) {
  if (options.dtype.has_value() && *options.dtype != DType::kF32 && *options.dtype != DType::kBF16 &&
      *options.dtype != DType::kF16 && !(*options.dtype == DType::kI8 && packed)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": weights as ", Name(*options.dtype),
                                                   ", expected F32, BF16 or F16; I8 is for packed models (.kvm)"));
  }
  RETURN_IF_ERROR(ValidateStack(spec));
  return CheckWeights(spec, weights);
}

TensorWriting WritingOf(const ModelWriteOptions& options) { return {options.dtype, options.cancelled}; }

// The config's fields as one JSON object.
absl::StatusOr<std::string> ConfigText(const std::map<std::string, std::string>& config) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [key, value] : config) {
    ASSIGN_OR_RETURN(object[key], ParseStrictJson(value, absl::StrCat("config.json: ", key)));
  }
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string EndTokensText(const std::vector<int32_t>& tokens) {
  return absl::StrCat("[", absl::StrJoin(tokens, ", "), "]");
}

// The config's fields for a form that has no generation_config.json: with all tokens that end a text.
std::map<std::string, std::string> WithEndTokens(std::map<std::string, std::string> config,
                                                 const std::vector<int32_t>& tokens) {
  if (!tokens.empty()) config["eos_token_id"] = EndTokensText(tokens);
  return config;
}

// The config's fields for tensors of another dtype, of which these speak too.
std::map<std::string, std::string> ConfigFor(const ModelWriteOptions& options) {
  std::map<std::string, std::string> config = options.config;
  if (!options.dtype.has_value()) return config;
  config["torch_dtype"] = *options.dtype == DType::kF32    ? "\"float32\""
                          : *options.dtype == DType::kBF16 ? "\"bfloat16\""
                                                           : "\"float16\"";
  return config;
}

// Writes a model that is one file: the tokenizer first, so that nothing can fail once the model is there.
absl::Status WriteOneFile(const std::string& path, const StackSpec& spec, const WeightSource& weights,
                          const ModelWriteOptions& options, bool packed, const std::function<absl::Status()>& write) {
  RETURN_IF_ERROR(CheckModel(path, spec, weights, options, packed));
  if (Exists(path) && !options.replace) return absl::AlreadyExistsError(absl::StrCat(path, ": exists already"));
  // Checksums of our own making would vouch for what is damaged.
  RETURN_IF_ERROR(weights.CheckContents(options.cancelled));
  Unfinished unfinished;
  const std::string folder = fs::path(path).parent_path().string();
  if (!folder.empty()) RETURN_IF_ERROR(MakeFolder(folder, &unfinished));
  if (!options.tokenizer_path.empty()) {
    ASSIGN_OR_RETURN(const std::string name, TokenizerFileName(options.tokenizer_path));
    const size_t kind = absl::EndsWith(name, ".json") ? 0 : 1;
    RETURN_IF_ERROR(CopyTokenizer(options.tokenizer_path, TokenizersBeside(path)[kind], options.replace, &unfinished));
  }
  RETURN_IF_ERROR(write());
  unfinished.Finish();
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteModelFolder(const std::string& path, const StackSpec& spec, const WeightSource& weights,
                              FolderForm form, const ModelWriteOptions& options) {
  RETURN_IF_ERROR(CheckModel(path, spec, weights, options, /*packed=*/false));
  const bool ours = form == FolderForm::kStack;
  std::string text = FormatStackSpec(spec);
  if (!ours) {
    ModelWriteOptions with_dtype = options;
    // A config of our own making says what its tensors are; one that came with the model is left as it was.
    if (options.config.empty()) with_dtype.dtype = options.dtype.value_or(weights.Info(kEmbedding)->dtype);
    ASSIGN_OR_RETURN(text, FormatHuggingFaceConfig(spec, ConfigFor(with_dtype)));
  }
  RETURN_IF_ERROR(CheckHoldsNoModel(path));
  RETURN_IF_ERROR(weights.CheckContents(options.cancelled));
  Unfinished unfinished;
  RETURN_IF_ERROR(MakeFolder(path, &unfinished));
  if (!options.tokenizer_path.empty()) {
    ASSIGN_OR_RETURN(const std::string name, TokenizerFileName(options.tokenizer_path));
    RETURN_IF_ERROR(CopyTokenizer(options.tokenizer_path, InFolder(path, name), /*replace=*/false, &unfinished));
  }
  if (!options.end_tokens.empty()) {
    const std::string generation = InFolder(path, kGenerationConfigFile);
    const std::string tokens = absl::StrCat("{\n  \"eos_token_id\": ", EndTokensText(options.end_tokens), "\n}\n");
    RETURN_IF_ERROR(WriteFileAtomically(generation, tokens));
    unfinished.Made(generation);
  }
  std::vector<std::string> written;
  const absl::Status status =
      WriteWeightFiles(path, spec, weights, WritingOf(options), options.max_shard_bytes, &written);
  for (const std::string& file : written) unfinished.Made(file);
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(CheckNotCancelled(options.cancelled));
  // Last, as a folder without it is no model.
  RETURN_IF_ERROR(WriteFileAtomically(InFolder(path, ours ? kStackFile : kConfigFile), text));
  unfinished.Finish();
  return absl::OkStatus();
}

absl::Status WriteModelSafetensors(const std::string& path, const StackSpec& spec, const WeightSource& weights,
                                   const ModelWriteOptions& options) {
  return WriteOneFile(path, spec, weights, options, /*packed=*/false, [&]() -> absl::Status {
    std::map<std::string, std::string> metadata = {{kStackMetadata, FormatStackSpec(spec)}};
    const std::map<std::string, std::string> config =
        WithEndTokens(options.config.empty() ? options.config : ConfigFor(options), options.end_tokens);
    if (!config.empty()) {
      ASSIGN_OR_RETURN(metadata[kConfigMetadata], ConfigText(config));
    }
    return WriteWeightFile(path, TensorOrder(spec, weights), weights, WritingOf(options), metadata);
  });
}

absl::Status WriteModelPacked(const std::string& path, const StackSpec& spec, const WeightSource& weights,
                              const ModelWriteOptions& options) {
  return WriteOneFile(path, spec, weights, options, /*packed=*/true, [&]() -> absl::Status {
    if (options.dtype == DType::kI8) {
      // The config goes on speaking of the tensors that the model came with.
      ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> int8, QuantizeWeights(spec, weights));
      return WritePackedModel(path, spec, *int8, WithEndTokens(options.config, options.end_tokens),
                              {std::nullopt, options.cancelled});
    }
    const std::map<std::string, std::string> config =
        WithEndTokens(options.config.empty() ? options.config : ConfigFor(options), options.end_tokens);
    return WritePackedModel(path, spec, weights, config, WritingOf(options));
  });
}

absl::Status WriteModelRwkv(const std::string& path, const StackSpec& spec, const WeightSource& weights,
                            const ModelWriteOptions& options) {
  return WriteOneFile(path, spec, weights, options, /*packed=*/false,
                      [&] { return WriteRwkvCheckpoint(path, spec, weights, WritingOf(options)); });
}

std::vector<std::string> TokenizersBeside(const std::string& model_path) {
  fs::path path(model_path);
  return {path.replace_extension("tokenizer.json").string(),
          fs::path(model_path).replace_extension("rwkv_vocab.txt").string()};
}

}  // namespace kvm
