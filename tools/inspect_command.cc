#include "tools/inspect_command.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/io/mapped_file.h"
#include "kvm/io/model_folder.h"
#include "kvm/io/safetensors.h"
#include "kvm/io/utf8.h"
#include "kvm/model/stack_spec.h"
#include "kvm/model/state_size.h"
#include "kvm/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/flag_set.h"
#include "tools/format.h"
#include "tools/machine.h"
#include "tools/stack_report.h"
#include "tools/tensor_report.h"

namespace kvm {
namespace {

constexpr int64_t kLongContext = 1024 * 1024;

struct InspectFlags {
  std::string path;
  std::string state = "f32";
  bool tensors = false;
  bool check = false;
  bool json = false;

  DType state_dtype() const { return state == "bf16" ? DType::kBF16 : DType::kF32; }
};

// What was found at the path: a stack, tensors, or both.
struct Inspected {
  std::string kind;
  std::optional<StackSpec> spec;
  std::unique_ptr<WeightSource> tensors;
  std::map<std::string, std::string> metadata;       // of a safetensors file
  std::map<std::string, std::string> unused_config;  // see ModelFolder
  std::string tokenizer_path;
};

absl::StatusOr<Inspected> Open(const std::string& path) {
  Inspected inspected;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    ASSIGN_OR_RETURN(ModelFolder folder, OpenModelFolder(path));
    inspected.kind = "model folder";
    inspected.spec = std::move(folder.spec);
    inspected.tensors = std::move(folder.weights);
    inspected.unused_config = std::move(folder.unused_config);
    inspected.tokenizer_path = std::move(folder.tokenizer_path);
  } else if (absl::EndsWith(path, ".textproto")) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    ASSIGN_OR_RETURN(inspected.spec, ParseStackSpec(text, path));
    inspected.kind = "stack";
  } else if (absl::EndsWith(path, ".safetensors")) {
    ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(path));
    inspected.metadata = file->metadata();
    inspected.tensors = std::move(file);
    inspected.kind = "safetensors file";
  } else if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file or folder"));
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": unknown kind of file; expected a model folder, a .safetensors file or a .textproto"));
  }
  return inspected;
}

// Bytes of weights and of one long sequence; whether this machine can hold both.
struct MemoryNeed {
  int64_t weights = 0;
  int64_t state = 0;
  int64_t machine = 0;
  bool fits() const { return machine == 0 || weights + state <= machine; }
};

MemoryNeed NeedOf(const Inspected& inspected, DType state_dtype) {
  return {TotalBytes(*inspected.tensors), SequenceStateSize(*inspected.spec, state_dtype, kLongContext).bytes,
          PhysicalMemory()};
}

std::string DescribeBroken(const std::vector<BrokenTensor>& broken) {
  if (broken.empty()) return "check: every byte read, all numbers are finite\n";
  std::vector<std::vector<std::string>> rows = {{"broken tensor", "NaN", "infinite", "of"}};
  for (const BrokenTensor& tensor : broken) {
    rows.push_back({Printable(tensor.name), FormatCount(tensor.nans), FormatCount(tensor.infinities),
                    FormatCount(tensor.elements)});
  }
  return FormatTable(rows);
}

void PrintText(const InspectFlags& values, const Inspected& inspected, const std::vector<BrokenTensor>& broken,
               std::ostream& out) {
  out << Printable(values.path) << ": " << inspected.kind << "\n";
  if (inspected.spec.has_value()) out << DescribeStack(*inspected.spec);
  if (inspected.tensors != nullptr) out << SummarizeTensors(*inspected.tensors) << "\n";
  for (const auto& [key, value] : inspected.metadata)
    out << "metadata: " << absl::Utf8SafeCEscape(key) << " = " << absl::Utf8SafeCEscape(value) << "\n";
  if (inspected.spec.has_value() && inspected.tensors != nullptr) {
    out << "tokenizer: " << (inspected.tokenizer_path.empty() ? "none" : Printable(inspected.tokenizer_path)) << "\n";
    std::vector<std::string> unused;
    for (const auto& [key, value] : inspected.unused_config) unused.push_back(Printable(key));
    if (!unused.empty()) out << "config keys without effect: " << absl::StrJoin(unused, ", ") << "\n";
  }
  if (inspected.spec.has_value()) {
    out << "\nbytes of one sequence, state " << values.state << ":\n"
        << StateSizeTable(*inspected.spec, values.state_dtype());
  }
  if (inspected.spec.has_value() && inspected.tensors != nullptr) {
    const MemoryNeed need = NeedOf(inspected, values.state_dtype());
    out << "\nmemory: weights " << FormatBytes(need.weights) << " + state at 1M tokens " << FormatBytes(need.state)
        << (need.fits() ? ": fits" : ": does not fit") << " in this machine's " << FormatBytes(need.machine) << "\n";
  }
  if (values.tensors && inspected.tensors != nullptr) out << "\n" << ListTensors(*inspected.tensors);
  if (values.check && inspected.tensors != nullptr) out << "\n" << DescribeBroken(broken);
}

void PrintJson(const InspectFlags& values, const Inspected& inspected, const std::vector<BrokenTensor>& broken,
               std::ostream& out) {
  nlohmann::json json = {{"path", values.path}, {"kind", inspected.kind}};
  if (inspected.spec.has_value()) json["stack"] = StackToJson(*inspected.spec, values.state_dtype());
  if (inspected.tensors != nullptr) {
    json["weights"] = TensorsToJson(*inspected.tensors, values.tensors);
    if (!inspected.metadata.empty()) json["metadata"] = inspected.metadata;
  }
  if (inspected.spec.has_value() && inspected.tensors != nullptr) {
    const MemoryNeed need = NeedOf(inspected, values.state_dtype());
    json["unused_config"] = inspected.unused_config;
    json["tokenizer"] = inspected.tokenizer_path;
    json["memory"] = {{"weight_bytes", need.weights},
                      {"state_bytes_at_1m", need.state},
                      {"machine_bytes", need.machine},
                      {"fits", need.fits()}};
  }
  if (values.check) {
    json["broken"] = nlohmann::json::array();
    for (const BrokenTensor& tensor : broken) {
      json["broken"].push_back({{"name", tensor.name},
                                {"nan", tensor.nans},
                                {"infinite", tensor.infinities},
                                {"elements", tensor.elements}});
    }
  }
  // Metadata and paths are whatever bytes a file has.
  out << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

absl::Status RunInspect(absl::Span<const std::string> args, Console& console) {
  FlagSet flags("inspect", "PATH [--tensors] [--check] [--json]",
                "Shows what a model folder, a Hugging Face folder, a .safetensors file or a stack's .textproto holds.");
  InspectFlags values;
  std::vector<std::string> positionals;
  flags.Positionals(&positionals);
  flags.Bool("tensors", &values.tensors, "list every tensor");
  flags.Bool("check", &values.check, "read every byte; numbers that are NaN or infinite are an error");
  flags.Choice("state", &values.state, {"f32", "bf16"}, "of the states whose sizes are shown");
  flags.Bool("json", &values.json, "print as JSON");
  RETURN_IF_ERROR(flags.Parse(args));
  if (positionals.size() != 1) return flags.Wrong("expected one PATH: a model folder, .safetensors or .textproto");
  values.path = positionals[0];

  ASSIGN_OR_RETURN(const Inspected inspected, Open(values.path));
  std::vector<BrokenTensor> broken;
  if (values.check && inspected.tensors != nullptr) {
    ASSIGN_OR_RETURN(broken, FindBrokenTensors(*inspected.tensors, console));
  }
  if (values.json) {
    PrintJson(values, inspected, broken, console.out);
  } else {
    PrintText(values, inspected, broken, console.out);
  }
  if (broken.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(values.path, ": ", broken.size(),
                                                 broken.size() == 1 ? " tensor has" : " tensors have",
                                                 " NaN or infinite numbers (", broken[0].name, ": ", broken[0].nans,
                                                 " NaN, ", broken[0].infinities, " infinite); expected finite ones"));
}

}  // namespace

Command InspectCommand() { return {"inspect", "shows what a model, a tensor file or a stack holds", RunInspect}; }

}  // namespace kvm
