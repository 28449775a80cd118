#include "kvm/io/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvm/io/atomic_file.h"
#include "kvm/io/huggingface.h"
#include "kvm/io/mapped_file.h"
#include "kvm/io/safetensors.h"
#include "kvm/io/sharded_weights.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/model/parameters.h"
#include "kvm/model/stack_spec.h"
#include "kvm/status_macros.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;

constexpr char kStackFile[] = "stack.textproto";
constexpr char kConfigFile[] = "config.json";
constexpr char kWeightsFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr char kTokenizerFile[] = "tokenizer.json";

std::string InFolder(const std::string& folder, const char* file) { return (fs::path(folder) / file).string(); }

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

absl::StatusOr<std::unique_ptr<WeightSource>> OpenWeights(const std::string& folder) {
  const std::string weights = InFolder(folder, kWeightsFile);
  if (Exists(weights)) {
    ASSIGN_OR_RETURN(std::unique_ptr<WeightSource> file, SafetensorsFile::Open(weights));
    return file;
  }
  const std::string index = InFolder(folder, kIndexFile);
  if (Exists(index)) return OpenShardedWeights(folder, index);
  return absl::NotFoundError(
      absl::StrCat(folder, ": no weights, expected ", kWeightsFile, " or ", kIndexFile, " with its shards"));
}

// The elements of `tensor` as `dtype` (kF32 or kBF16).
Tensor Converted(const TensorView& tensor, DType dtype) {
  const std::vector<float> values = ReadFloats(tensor);
  if (dtype == DType::kF32) return Tensor::FromFloats(tensor.shape, values);
  Tensor converted(DType::kBF16, tensor.shape);
  std::transform(values.begin(), values.end(), static_cast<BFloat16*>(converted.bytes()), ToBFloat16);
  return converted;
}

absl::Status WriteWeights(const std::string& path, const StackSpec& spec, const WeightSource& weights, DType dtype) {
  std::vector<NamedTensorView> views;
  std::vector<Tensor> converted;  // own what some views show; moving a tensor leaves its bytes in place
  for (const Parameter& parameter : StackParameters(spec)) {
    const TensorView& tensor = *weights.Find(parameter.name);
    if (tensor.dtype == dtype) {
      views.push_back({parameter.name, tensor});
    } else {
      converted.push_back(Converted(tensor, dtype));
      views.push_back({parameter.name, converted.back().view()});
    }
  }
  return WriteSafetensors(path, std::move(views), {{"format", "pt"}});
}

// The files of a model that is being written: removed, the last one first, unless it is finished.
class UnfinishedFolder {
 public:
  ~UnfinishedFolder() {
    std::error_code ignored;
    for (auto path = made_.rbegin(); path != made_.rend(); ++path) fs::remove(*path, ignored);
  }

  void Made(const std::string& path) { made_.push_back(path); }
  void Finish() { made_.clear(); }

 private:
  std::vector<std::string> made_;
};

// Makes a folder and those above it that are missing.
absl::Status MakeFolder(const std::string& path, UnfinishedFolder* unfinished) {
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
  for (const char* file : {kStackFile, kConfigFile, kWeightsFile, kIndexFile}) {
    if (Exists(InFolder(path, file))) {
      return absl::AlreadyExistsError(
          absl::StrCat(path, ": holds ", file, " already, expected a folder without model"));
    }
  }
  return absl::OkStatus();
}

absl::Status CopyTokenizer(const std::string& from, const std::string& to, UnfinishedFolder* unfinished) {
  std::error_code ignored;
  if (fs::equivalent(from, to, ignored)) return absl::OkStatus();
  if (Exists(to)) return absl::AlreadyExistsError(absl::StrCat(to, ": exists already"));
  ASSIGN_OR_RETURN(const std::string text, ReadFile(from));
  RETURN_IF_ERROR(WriteFileAtomically(to, text));
  unfinished->Made(to);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelFolder> OpenModelFolder(const std::string& path) {
  const std::string stack = InFolder(path, kStackFile);
  const std::string config = InFolder(path, kConfigFile);
  if (!IsFolder(path) || (!Exists(stack) && !Exists(config))) {
    return absl::NotFoundError(absl::StrCat(path, ": no model here, expected a folder that holds ", kStackFile, " or ",
                                            kConfigFile, ", and ", kWeightsFile));
  }
  if (Exists(stack) && Exists(config)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": holds both ", kStackFile, " and ", kConfigFile, ", expected one of them"));
  }

  ModelFolder folder;
  folder.path = path;
  if (Exists(stack)) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(stack));
    ASSIGN_OR_RETURN(folder.spec, ParseStackSpec(text, stack));
    ASSIGN_OR_RETURN(folder.weights, OpenWeights(path));
  } else {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(config));
    ASSIGN_OR_RETURN(HuggingFaceConfig parsed, ParseHuggingFaceConfig(text, config));
    folder.spec = std::move(parsed.spec);
    folder.unused_config = std::move(parsed.unused);
    ASSIGN_OR_RETURN(folder.weights, OpenWeights(path));
    AdoptRanks(*folder.weights, &folder.spec);
    // There the flag speaks of files that lack a head.
    if (folder.weights->Find("lm_head.weight") != nullptr) folder.spec.set_tied_head(false);
  }
  RETURN_IF_ERROR(CheckWeights(folder.spec, *folder.weights));
  const std::string tokenizer = InFolder(path, kTokenizerFile);
  if (Exists(tokenizer)) folder.tokenizer_path = tokenizer;
  return folder;
}

absl::Status WriteModelFolder(const std::string& path, const StackSpec& spec, const WeightSource& weights, DType dtype,
                              const std::string& tokenizer_path) {
  if (dtype != DType::kF32 && dtype != DType::kBF16) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": weights as ", Name(dtype), ", expected F32 or BF16"));
  }
  RETURN_IF_ERROR(ValidateStack(spec));
  RETURN_IF_ERROR(CheckWeights(spec, weights));
  RETURN_IF_ERROR(CheckHoldsNoModel(path));
  UnfinishedFolder unfinished;
  RETURN_IF_ERROR(MakeFolder(path, &unfinished));
  if (!tokenizer_path.empty()) {
    RETURN_IF_ERROR(CopyTokenizer(tokenizer_path, InFolder(path, kTokenizerFile), &unfinished));
  }
  const std::string weights_path = InFolder(path, kWeightsFile);
  RETURN_IF_ERROR(WriteWeights(weights_path, spec, weights, dtype));
  unfinished.Made(weights_path);
  // Last, as a folder without it is no model.
  RETURN_IF_ERROR(WriteFileAtomically(InFolder(path, kStackFile), FormatStackSpec(spec)));
  unfinished.Finish();
  return absl::OkStatus();
}

}  // namespace kvm
