#include "kvm/io/tensors/weight_files.h"

#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/folder_files.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/weights/parameters.h"
#include "nlohmann/json.hpp"

namespace kvm {
namespace {

int64_t SizeAs(const TensorInfo& info, std::optional<DType> dtype) {
  return NumElements(info.shape) * SizeOf(dtype.value_or(info.dtype));
}

}  // namespace

std::vector<std::string> TensorOrder(const StackSpec& spec, const WeightSource& weights) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const Parameter& parameter : StackParameters(spec)) {
    names.push_back(parameter.name);
    seen.insert(parameter.name);
  }
  for (const std::string& name : weights.Names()) {
    if (seen.insert(name).second) names.push_back(name);
  }
  return names;
}

std::vector<std::vector<std::string>> PlanShards(const std::vector<std::string>& names, const WeightSource& weights,
                                                 std::optional<DType> dtype, int64_t max_bytes) {
  std::vector<std::vector<std::string>> shards;
  std::vector<std::string> current;
  int64_t bytes = 0;
  for (const std::string& name : names) {
    const int64_t size = SizeAs(*weights.Info(name), dtype);
    if (size > max_bytes) {
      shards.push_back({name});
      continue;
    }
    if (size > max_bytes - bytes) {
      shards.push_back(std::exchange(current, {}));
      bytes = 0;
    }
    current.push_back(name);
    bytes += size;
  }
  if (!current.empty()) shards.push_back(std::move(current));
  return shards;
}

absl::Status WriteWeightFile(const std::string& path, const std::vector<std::string>& names,
                             const WeightSource& weights, const TensorWriting& writing,
                             std::map<std::string, std::string> metadata) {
  metadata["format"] = "pt";
  return WriteSafetensorsStream(path, StreamWeights(weights, names, writing), metadata);
}

absl::Status WriteWeightFiles(const std::string& folder, const StackSpec& spec, const WeightSource& weights,
                              const TensorWriting& writing, int64_t max_bytes, std::vector<std::string>* written) {
  const auto in_folder = [&](const std::string& file) { return (std::filesystem::path(folder) / file).string(); };
  const std::vector<std::string> names = TensorOrder(spec, weights);
  const std::vector<std::vector<std::string>> shards = PlanShards(names, weights, writing.dtype, max_bytes);
  if (shards.size() == 1) {
    RETURN_IF_ERROR(WriteWeightFile(in_folder(kWeightsFile), names, weights, writing));
    written->push_back(in_folder(kWeightsFile));
    return absl::OkStatus();
  }
  nlohmann::json map = nlohmann::json::object();
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string file = absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, shards.size());
    for (const std::string& name : shards[i]) {
      map[name] = file;
      total += SizeAs(*weights.Info(name), writing.dtype);
    }
    RETURN_IF_ERROR(WriteWeightFile(in_folder(file), shards[i], weights, writing));
    written->push_back(in_folder(file));
  }
  // Flushing a large file may have taken a while.
  RETURN_IF_ERROR(CheckNotCancelled(writing.cancelled));
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
  RETURN_IF_ERROR(WriteFileAtomically(in_folder(kIndexFile), index.dump(2) + "\n"));
  written->push_back(in_folder(kIndexFile));
  return absl::OkStatus();
}

}  // namespace kvm
