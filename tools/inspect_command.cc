#include "tools/inspect_command.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/base/file/file_kind.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/file/path_check.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/model_file.h"
#include "kvm/io/model_writer.h"
#include "kvm/io/stack_file.h"
#include "kvm/io/tensors/model_fingerprint.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/io/torch/rwkv_checkpoint.h"
#include "kvm/io/torch/torch_file.h"
#include "kvm/model/engine/state_size.h"
#include "nlohmann/json.hpp"
#include "tools/cli/flag_set.h"
#include "tools/cli/format.h"
#include "tools/cli/machine.h"
#include "tools/cli/output_paths.h"
#include "tools/flags/model_flags.h"
#include "tools/flags/state_fits.h"
#include "tools/flags/tokenizer_flags.h"
#include "tools/report/inspect_snapshot.h"
#include "tools/report/stack_report.h"
#include "tools/report/state_report.h"
#include "tools/report/tensor_report.h"

namespace kvm {
namespace {

// Bytes of a metadata field.
constexpr size_t kLongestShown = size_t{1} << 20;
constexpr int64_t kLongContext = 1024 * 1024;

struct InspectFlags {
  std::string path;
  std::string state = "f32";
  bool tensors = false;
  bool check = false;
  bool json = false;

  DType state_dtype() const { return StateDType(state); }
};

// What was found at the path: a stack, tensors, or both.
struct Inspected {
  std::string kind;
  std::optional<StackSpec> spec;
  std::unique_ptr<WeightSource> tensors;
  std::map<std::string, std::string> metadata;       // of a safetensors file
  std::map<std::string, std::string> unused_config;  // see ModelFolder
  std::string tokenizer_path;
  std::optional<uint64_t> fingerprint;  // of a packed model
};

FileKind KindOf(const std::string& path) {
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return FileKind::kUnknown;
  const absl::Span<const uint8_t> start = file->bytes().subspan(0, kFileKindBytes);
  return DetectFileKind({reinterpret_cast<const char*>(start.data()), start.size()});
}

// Whether a path is a folder or a file that begins as models do.
bool IsModelFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return true;
  const FileKind kind = KindOf(path);
  return kind == FileKind::kPacked || kind == FileKind::kSafetensors || kind == FileKind::kZip ||
         kind == FileKind::kPickle;
}

bool IsTorchFile(const std::string& path) { return KindOf(path) == FileKind::kZip; }

absl::StatusOr<Inspected> InspectModel(const std::string& path, Console& console) {
  absl::StatusOr<OpenedModel> open = OpenModelWithNotes(path, console);
  if (absl::IsInvalidArgument(open.status()) && !IsModelFile(path)) {
    return absl::InvalidArgumentError(
        absl::StrCat(open.status().message(), "; kvm inspect takes a snapshot and a stack's .textproto as well"));
  }
  ASSIGN_OR_RETURN(OpenedModel opened, std::move(open));
  Inspected inspected;
  inspected.kind = std::string(Name(opened.kind));
  inspected.spec = std::move(opened.model.spec);
  inspected.tensors = std::move(opened.model.weights);
  inspected.unused_config = std::move(opened.model.unused_config);
  inspected.tokenizer_path = std::move(opened.model.tokenizer_path);
  inspected.fingerprint = opened.fingerprint;
  NoteBrokenTokenizer(inspected.tokenizer_path, console);
  return inspected;
}

absl::StatusOr<Inspected> Open(const std::string& path, Console& console) {
  RETURN_IF_ERROR(CheckPathExists(path));
  Inspected inspected;
  if (absl::EndsWithIgnoreCase(path, ".textproto")) {
    ASSIGN_OR_RETURN(inspected.spec, ReadStackFile(path));
    inspected.kind = "stack";
    return inspected;
  }
  if (absl::EndsWithIgnoreCase(path, ".safetensors")) {
    ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(path));
    if (file->metadata().count(kStackMetadata) == 0 && !HasRwkvNames(*file)) {
      inspected.metadata = file->metadata();
      inspected.tensors = std::move(file);
      inspected.kind = "safetensors file";
      return inspected;
    }
  }
  if (IsTorchFile(path)) {
    ASSIGN_OR_RETURN(std::unique_ptr<TorchFile> file, TorchFile::Open(path));
    if (!HasRwkvNames(*file)) {
      inspected.tensors = std::move(file);
      inspected.kind = "PyTorch checkpoint";
      return inspected;
    }
  }
  return InspectModel(path, console);
}

// Bytes of weights and of one long sequence; whether this machine can hold both now.
struct MemoryNeed {
  int64_t weights = 0;
  int64_t state = 0;
  int64_t available = 0;
  int64_t machine = 0;
  int64_t usable = 0;           // of the machine's, by this process
  std::string block_too_large;  // see DescribeBlockTooLarge
  bool fits() const {
    return machine == 0 || static_cast<double>(weights) + static_cast<double>(state) <= static_cast<double>(available);
  }
};

MemoryNeed NeedOf(const Inspected& inspected, DType state_dtype) {
  MemoryNeed need;
  need.weights = TotalBytes(*inspected.tensors);
  need.state = SequenceStateSize(*inspected.spec, state_dtype, kLongContext).bytes;
  need.available = AvailableMemory();
  need.machine = PhysicalMemory();
  need.usable = UsableMemory();
  const int64_t rest = std::max<int64_t>(need.available - need.weights, 1);
  if (!need.fits()) need.block_too_large = DescribeBlockTooLarge(*inspected.spec, state_dtype, 1, rest);
  return need;
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
  if (inspected.fingerprint.has_value()) {
    out << "fingerprint: " << absl::StrCat(absl::Hex(*inspected.fingerprint, absl::kZeroPad16)) << "\n";
  }
  for (const auto& [key, value] : inspected.metadata)
    out << "metadata: " << Printable(key, kLongestShown) << " = " << Printable(value, kLongestShown) << "\n";
  if (inspected.spec.has_value() && inspected.tensors != nullptr) {
    out << "tokenizer: " << (inspected.tokenizer_path.empty() ? "none" : Printable(inspected.tokenizer_path)) << "\n";
    std::vector<std::string> unused;
    for (const auto& [key, value] : inspected.unused_config) unused.push_back(Printable(key));
    if (!unused.empty()) out << "config keys without effect: " << absl::StrJoin(unused, ", ") << "\n";
  }
  if (inspected.spec.has_value()) {
    out << "\nbytes of one sequence, state " << values.state << ":\n"
        << StateSizeTable(*inspected.spec, values.state_dtype()) << "\n"
        << StateGrowthTable(*inspected.spec, values.state_dtype());
  }
  if (inspected.spec.has_value() && inspected.tensors != nullptr) {
    const MemoryNeed need = NeedOf(inspected, values.state_dtype());
    out << "\nmemory: weights " << FormatBytes(need.weights) << " + state at 1M tokens " << FormatBytes(need.state)
        << (need.fits() ? ": fits in the " : ": does not fit in the ") << FormatBytes(need.available)
        << " available of " << (need.usable < need.machine ? "this process's " : "this machine's ")
        << FormatBytes(std::min(need.usable, need.machine)) << (need.block_too_large.empty() ? "" : "; ")
        << need.block_too_large << "\n";
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
    if (inspected.fingerprint.has_value()) {
      json["fingerprint"] = absl::StrCat(absl::Hex(*inspected.fingerprint, absl::kZeroPad16));
    }
    json["tokenizer"] = inspected.tokenizer_path;
    json["memory"] = {{"weight_bytes", need.weights},      {"state_bytes_at_1m", need.state},
                      {"available_bytes", need.available}, {"machine_bytes", need.machine},
                      {"usable_bytes", need.usable},       {"fits", need.fits()}};
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
  FlagSet flags("inspect", "PATH [--tensors] [--check] [--json] [--map=F.svg]",
                "Shows what a model folder, a Hugging Face folder, a packed model (.kvm), a PyTorch .pth, a "
                ".safetensors file, a\n"
                "stack's .textproto or a snapshot of a session holds.");
  InspectFlags values;
  std::vector<std::string> positionals;
  flags.Positionals(&positionals);
  flags.Bool("tensors", &values.tensors, "list every tensor");
  flags.Bool("check", &values.check,
             "read every byte; numbers of models that are NaN or infinite, and wrong checksums, are an error");
  flags.Choice("state", &values.state, StateNames(), "of the states whose sizes are shown");
  flags.Bool("json", &values.json, "print as JSON");
  InspectSnapshotOptions of_snapshot;
  int64_t layer = 0;
  flags.String("map", &of_snapshot.map, "FILE",
               "of a snapshot made with --provenance, draw which row each token went to (.svg), or list it (.csv)");
  DefineForceFlag(flags, &of_snapshot.force);
  flags.Int64("layer", &layer, 0, std::numeric_limits<int32_t>::max(), "whose map; by default the first with rows");
  flags.Int64("head", &of_snapshot.head, 0, std::numeric_limits<int32_t>::max(), "the key/value head whose map it is");
  RETURN_IF_ERROR(flags.Parse(args));
  if (positionals.size() != 1)
    return flags.Wrong("expected one PATH: a model folder, .kvm, .pth, .safetensors, .textproto or a snapshot");
  values.path = positionals[0];
  if (KindOf(values.path) == FileKind::kSnapshot) {
    of_snapshot.tensors = values.tensors;
    of_snapshot.check = values.check;
    of_snapshot.json = values.json;
    if (flags.IsSet("layer")) of_snapshot.layer = layer;
    return InspectSnapshot(values.path, of_snapshot, console);
  }
  if (!of_snapshot.map.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(values.path, ": --map is for snapshots of sessions; this is none"));
  }

  const AbandonableStep reading(console);
  ASSIGN_OR_RETURN(const Inspected inspected, Open(values.path, console));
  std::vector<BrokenTensor> broken;
  if (values.check && inspected.tensors != nullptr) {
    RETURN_IF_ERROR(inspected.tensors->CheckContents(console.interrupted));
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

Command InspectCommand() {
  return {"inspect", "shows what a model, a tensor file, a stack or a snapshot holds", RunInspect};
}

}  // namespace kvm
