#include "kvm/io/tensors/sharded_weights.h"

#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/file/path_check.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/json/json_fields.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/model/weights/tensor_problems.h"

namespace kvm {
namespace {

// Only what the index names: it says which of a shard's tensors count.
class ShardedWeights : public WeightSource {
 public:
  explicit ShardedWeights(std::string index_path) : index_path_(std::move(index_path)) {}

  void Add(const std::string& name, const TensorView* tensor) { tensors_[name] = tensor; }
  void Keep(std::unique_ptr<SafetensorsFile> shard) { shards_.push_back(std::move(shard)); }

  // So that "missing" says where a name should have been.
  std::string Description() const override { return index_path_ + " (weight_map)"; }

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& entry : tensors_) names.push_back(entry.first);
    return names;
  }

  const TensorView* Find(absl::string_view name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : found->second;
  }

 private:
  std::string index_path_;
  std::vector<std::unique_ptr<SafetensorsFile>> shards_;
  std::map<std::string, const TensorView*, std::less<>> tensors_;
};

// What is common to layers in messages, and the most entries of the index that one names.
constexpr char kLayers[] = "transformer.h.";
constexpr size_t kMostProblems = 20;

std::string InFolder(const std::string& folder, const std::string& file) {
  return (std::filesystem::path(folder) / file).string();
}

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

// What the index states as its tensors' bytes, where that is not so.
void NoteTotalSize(const nlohmann::json& index, const WeightSource& weights, const std::string& index_path,
                   std::vector<std::string>* notes) {
  int64_t bytes = 0;
  for (const std::string& name : weights.Names()) bytes += weights.Find(name)->byte_size();
  const auto metadata = index.find("metadata");
  if (metadata == index.end() || !metadata->is_object()) return;
  const auto total = metadata->find("total_size");
  if (total == metadata->end() || *total == bytes) return;
  notes->push_back(
      absl::StrCat(index_path, ": metadata.total_size is ", ShortJson(*total), "; the tensors have ", bytes, " bytes"));
}

// Tensors that a shard holds and the index does not name: they may be what is missing.
void NoteUnnamed(const SafetensorsFile& shard, const nlohmann::json& map, const std::string& index_path,
                 std::vector<std::string>* notes) {
  std::vector<std::string> unnamed;
  for (const std::string& name : shard.Names()) {
    if (!map.contains(name)) unnamed.push_back(name);
  }
  if (unnamed.empty()) return;
  notes->push_back(absl::StrCat(shard.Description(), ": ", unnamed.size(), " of its tensors are not named by ",
                                index_path, " and not read (", unnamed[0], unnamed.size() > 1 ? ", ..." : "", ")"));
}

// The tensors that the index expects in each file.
using Shards = std::map<std::string, std::vector<std::string>>;

absl::StatusOr<Shards> ReadWeightMap(const nlohmann::json& map, const std::string& index_path) {
  Shards shards;
  std::vector<std::string> problems;
  for (const auto& [tensor, file] : map.items()) {
    if (file.is_string() && IsPlainFileName(file.get_ref<const std::string&>())) {
      shards[file.get<std::string>()].push_back(tensor);
    } else if (problems.size() < kMostProblems) {
      problems.push_back(absl::StrCat(ShortJson(tensor), ": got ", ShortJson(file)));
    } else {
      problems.back() = "...";
    }
  }
  if (problems.empty()) return shards;
  return absl::InvalidArgumentError(absl::StrCat(index_path, ": weight_map: ", absl::StrJoin(problems, "; "),
                                                 ", expected the name of a file beside the index"));
}

// NotFound that names all shards that are not there; what else keeps one from being seen is said as well.
absl::Status CheckShardsExist(const std::string& folder, const Shards& shards, const std::string& index_path) {
  std::vector<std::string> missing, problems;
  size_t tensors = 0;
  for (const auto& [file, expected] : shards) {
    const absl::Status exists = CheckPathExists(InFolder(folder, file));
    if (absl::IsNotFound(exists)) {
      missing.push_back(file);
      tensors += expected.size();
    } else if (!exists.ok()) {
      problems.emplace_back(exists.message());
    }
  }
  const std::string puts =
      absl::StrCat("; ", index_path, " puts ", tensors, tensors == 1 ? " tensor there" : " tensors there");
  if (missing.size() == 1) {
    problems.push_back(absl::StrCat(InFolder(folder, missing[0]), ": this shard is missing", puts));
  } else if (!missing.empty()) {
    problems.push_back(absl::StrCat(folder, ": ", missing.size(), " of ", shards.size(),
                                    " shards are missing: ", absl::StrJoin(missing, ", "), puts));
  }
  if (problems.empty()) return absl::OkStatus();
  const std::string message = absl::StrJoin(problems, "; ");
  return missing.empty() ? absl::FailedPreconditionError(message) : absl::NotFoundError(message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightSource>> OpenShardedWeights(const std::string& folder,
                                                                 const std::string& index_path,
                                                                 std::vector<std::string>* notes) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(index_path));
  ASSIGN_OR_RETURN(const nlohmann::json index, ParseJsonObject(text, index_path));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(index_path, ": weight_map: expected an object of tensor names and file names"));
  }

  ASSIGN_OR_RETURN(const Shards shards, ReadWeightMap(*map, index_path));
  RETURN_IF_ERROR(CheckShardsExist(folder, shards, index_path));
  auto weights = std::make_unique<ShardedWeights>(index_path);
  std::vector<std::string> problems;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  for (const auto& [file, tensors] : shards) {
    absl::StatusOr<std::unique_ptr<SafetensorsFile>> shard = SafetensorsFile::Open(InFolder(folder, file));
    if (!shard.ok()) {
      if (problems.empty()) code = shard.status().code();
      problems.emplace_back(shard.status().message());
      continue;
    }
    TensorProblems lacking(kLayers);
    for (const std::string& tensor : tensors) {
      const TensorView* const view = (*shard)->Find(tensor);
      if (view == nullptr) {
        lacking.Add(tensor, absl::StrCat("missing, though ", index_path, " puts it here"));
      } else {
        weights->Add(tensor, view);
      }
    }
    if (!lacking.empty()) problems.push_back(absl::StrCat((*shard)->Description(), ": ", lacking.Join()));
    NoteUnnamed(**shard, *map, index_path, notes);
    weights->Keep(*std::move(shard));
  }
  if (!problems.empty()) return absl::Status(code, absl::StrJoin(problems, "; "));
  NoteTotalSize(index, *weights, index_path, notes);
  return std::unique_ptr<WeightSource>(std::move(weights));
}

}  // namespace kvm
