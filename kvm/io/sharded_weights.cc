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

class ShardedWeights : public WeightSource {
 public:
  explicit ShardedWeights(std::string index_path) : index_path_(std::move(index_path)) {}

  absl::Status Add(std::unique_ptr<SafetensorsFile> shard) {
    for (const std::string& name : shard->Names()) {
      if (!tensors_.emplace(name, shard->Find(name)).second) {
        return absl::InvalidArgumentError(
            absl::StrCat(shard->Description(), ": tensor ", name, " is in another shard as well"));
      }
    }
    shards_.push_back(std::move(shard));
    return absl::OkStatus();
  }

  std::string Description() const override { return index_path_; }

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

}  // namespace

absl::StatusOr<std::unique_ptr<WeightSource>> OpenShardedWeights(const std::string& folder,
                                                                 const std::string& index_path) {
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
    ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> shard,
                     SafetensorsFile::Open((std::filesystem::path(folder) / file).string()));
    for (const std::string& tensor : tensors) {
      if (shard->Find(tensor) == nullptr) {
        return absl::InvalidArgumentError(absl::StrCat(shard->Description(), ": lacks tensor ", ShortJson(tensor),
                                                       " that ", index_path, " puts there"));
      }
    }
    RETURN_IF_ERROR(weights->Add(std::move(shard)));
  }
  return std::unique_ptr<WeightSource>(std::move(weights));
}

}  // namespace kvm
