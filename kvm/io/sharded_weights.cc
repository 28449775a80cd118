#include "kvm/io/sharded_weights.h"

#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kvm/io/json_fields.h"
#include "kvm/io/mapped_file.h"
#include "kvm/io/safetensors.h"
#include "kvm/status_macros.h"

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

  std::map<std::string, std::vector<std::string>> shards;  // the tensors that the index expects in each file
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !IsPlainFileName(file.get<std::string>())) {
      return absl::InvalidArgumentError(absl::StrCat(index_path, ": weight_map: ", ShortJson(tensor), ": got ",
                                                     ShortJson(file),
                                                     ", expected the name of a file beside the index"));
    }
    shards[file.get<std::string>()].push_back(tensor);
  }
  auto weights = std::make_unique<ShardedWeights>(index_path);
  for (const auto& [file, tensors] : shards) {
    const std::string path = (std::filesystem::path(folder) / file).string();
    absl::StatusOr<std::unique_ptr<SafetensorsFile>> shard = SafetensorsFile::Open(path);
    if (absl::IsNotFound(shard.status())) {
      return absl::NotFoundError(absl::StrCat(path, ": this shard is missing; ", index_path, " puts ", tensors.size(),
                                              tensors.size() == 1 ? " tensor there" : " tensors there"));
    }
    RETURN_IF_ERROR(shard.status());
    for (const std::string& tensor : tensors) {
      const TensorView* const view = (*shard)->Find(tensor);
      if (view == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": lacks tensor ", ShortJson(tensor), " that ", index_path, " puts there"));
      }
      weights->Add(tensor, view);
    }
    NoteUnnamed(**shard, *map, index_path, notes);
    weights->Keep(*std::move(shard));
  }
  NoteTotalSize(index, *weights, index_path, notes);
  return std::unique_ptr<WeightSource>(std::move(weights));
}

}  // namespace kvm
