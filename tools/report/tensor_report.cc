#include "tools/report/tensor_report.h"

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/base/file/utf8.h"
#include "kvm/kernels/panels_view.h"
#include "tools/cli/command_status.h"
#include "tools/cli/format.h"
#include "tools/cli/progress.h"

namespace kvm {
namespace {

// What a tensor is as it is stored: int8 with its scales or quantized blocks where the source has those.
struct AsStored {
  std::string type;
  Shape shape;
  int64_t bytes = 0;
};

AsStored StoredTensor(const WeightSource& source, const std::string& name) {
  const TensorInfo info = *source.Info(name);
  const std::optional<StoredForm> stored = source.Stored(name);
  if (stored.has_value()) return {stored->type, info.shape, stored->bytes};
  const PanelsView* const panels = source.FindPanels(name);
  if (panels != nullptr && panels->storage == DType::kI8)
    return {std::string(Name(DType::kI8)), info.shape, panels->byte_size()};
  return {std::string(Name(info.dtype)), info.shape, NumElements(info.shape) * SizeOf(info.dtype)};
}

// Bytes of each type.
std::map<std::string, int64_t> BytesByType(const WeightSource& source) {
  std::map<std::string, int64_t> bytes;
  for (const std::string& name : source.Names()) {
    const AsStored tensor = StoredTensor(source, name);
    bytes[tensor.type] += tensor.bytes;
  }
  return bytes;
}

}  // namespace

int64_t TotalBytes(const WeightSource& source) {
  int64_t total = 0;
  for (const auto& [dtype, bytes] : BytesByType(source)) total += bytes;
  return total;
}

std::string SummarizeTensors(const WeightSource& source) {
  std::vector<std::string> dtypes;
  for (const auto& [dtype, bytes] : BytesByType(source)) {
    dtypes.push_back(absl::StrCat(dtype, " ", FormatBytes(bytes)));
  }
  const size_t count = source.Names().size();
  return absl::StrCat(count, count == 1 ? " tensor, " : " tensors, ", FormatBytes(TotalBytes(source)),
                      dtypes.empty() ? "" : ": ", absl::StrJoin(dtypes, ", "));
}

std::string ListTensors(const WeightSource& source) {
  std::vector<std::vector<std::string>> rows = {{"tensor", "dtype", "shape", "bytes"}};
  for (const std::string& name : source.Names()) {
    const AsStored tensor = StoredTensor(source, name);
    rows.push_back({Printable(name), tensor.type, ToString(tensor.shape), FormatCount(tensor.bytes)});
  }
  return FormatTable(rows);
}

nlohmann::json TensorsToJson(const WeightSource& source, bool list) {
  nlohmann::json json = {
      {"tensors", source.Names().size()}, {"bytes", TotalBytes(source)}, {"dtypes", BytesByType(source)}};
  if (!list) return json;
  json["list"] = nlohmann::json::array();
  for (const std::string& name : source.Names()) {
    const AsStored tensor = StoredTensor(source, name);
    json["list"].push_back({{"name", name}, {"dtype", tensor.type}, {"shape", tensor.shape}, {"bytes", tensor.bytes}});
  }
  return json;
}

absl::StatusOr<std::vector<BrokenTensor>> FindBrokenTensors(const WeightSource& source, Console& console) {
  std::vector<BrokenTensor> broken;
  Progress progress(console, "reading", "bytes", TotalBytes(source));
  int64_t done = 0;
  for (const std::string& name : source.Names()) {
    const HeldTensor held = source.Read(name);
    const TensorView& tensor = held.view;
    BrokenTensor found{source.NameInFile(name), 0, 0, tensor.num_elements()};
    for (const float value : ReadFloats(tensor)) {
      found.nans += std::isnan(value);
      found.infinities += std::isinf(value);
    }
    if (found.nans + found.infinities > 0) broken.push_back(found);
    done += StoredTensor(source, name).bytes;
    progress.Update(done);
    if (console.interrupted()) return Interrupted();
  }
  return broken;
}

}  // namespace kvm
