#include "tools/report/inspect_snapshot.h"

#include <filesystem>
#include <ostream>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/state/snapshot/snapshot.h"
#include "nlohmann/json.hpp"
#include "tools/cli/format.h"
#include "tools/cli/output_paths.h"
#include "tools/report/row_map.h"
#include "tools/report/stack_report.h"

namespace kvm {
namespace {

std::string Fingerprint(const SnapshotHeader& header) {
  return absl::StrCat(absl::Hex(header.model().fingerprint(), absl::kZeroPad16));
}

// The mixer of every layer of the state, "-" where the header's spec does not say.
std::vector<std::string> MixerKinds(const SnapshotHeader& header) {
  std::vector<std::string> kinds(static_cast<size_t>(header.layers_size()), "-");
  const absl::StatusOr<StackSpec> spec = ParseStackSpec(header.model().stack(), "stack");
  if (!spec.ok() || spec->layers_size() != header.layers_size()) return kinds;
  for (int i = 0; i < spec->layers_size(); ++i) {
    kinds[static_cast<size_t>(i)] = MixerTitle(spec->mixers(MixerIndex(*spec, i)), spec->width());
  }
  return kinds;
}

int64_t StateBytes(const SnapshotHeader& header) {
  int64_t bytes = 0;
  for (const SnapshotLayer& layer : header.layers()) bytes += layer.bytes();
  return bytes;
}

int64_t FileBytes(const std::string& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

std::string Range(int64_t begin, int64_t end) {
  return end > begin ? absl::StrCat(FormatCount(begin), " to ", FormatCount(end - 1)) : "-";
}

std::string DescribeSampler(const SnapshotSampler& sampler) {
  return absl::StrCat("temperature ", sampler.temperature(), ", top-k ", sampler.top_k(), ", top-p ", sampler.top_p(),
                      ", min-p ", sampler.min_p(), ", repetition penalty ", sampler.repetition_penalty(), ", seed ",
                      sampler.seed(), "; ", FormatCounted(static_cast<int64_t>(sampler.draws()), "draw"));
}

std::vector<SnapshotSection> Sections(const SnapshotHeader& header) {
  std::vector<SnapshotSection> sections;
  if (header.has_tokens()) sections.push_back(header.tokens());
  if (header.has_logits()) sections.push_back(header.logits());
  sections.insert(sections.end(), header.tensors().begin(), header.tensors().end());
  return sections;
}

std::string LayerTable(const SnapshotHeader& header) {
  std::vector<std::vector<std::string>> rows = {{"layer", "rows", "bytes", "in rows", "in the window", "mixer"}};
  const std::vector<std::string> kinds = MixerKinds(header);
  for (int i = 0; i < header.layers_size(); ++i) {
    const SnapshotLayer& layer = header.layers(i);
    rows.push_back({absl::StrCat(i), layer.rows() > 0 ? FormatCount(layer.rows()) : "-", FormatBytes(layer.bytes()),
                    Range(layer.rows_begin(), layer.rows_end()), Range(layer.window_begin(), layer.window_end()),
                    kinds[static_cast<size_t>(i)]});
  }
  return FormatTable(rows);
}

void PrintText(const std::string& path, const SnapshotHeader& header, const InspectSnapshotOptions& options,
               std::ostream& out) {
  const SnapshotModel& model = header.model();
  out << Printable(path) << ": snapshot of a session\n"
      << FormatCounted(header.position(), "token") << ", state " << FormatBytes(StateBytes(header)) << ", file "
      << FormatBytes(FileBytes(path)) << "\n"
      << "model: fingerprint " << Fingerprint(header) << ", weights " << Printable(model.weights()) << ", state "
      << Printable(model.state()) << (model.chunked_recurrences() ? ", recurrences in chunks" : "")
      << (model.provenance() ? ", with the row of every token" : "") << "\n"
      << "logits of the next token: " << (header.has_logits() ? "yes" : "none") << "\n"
      << "sampler: " << (header.has_sampler() ? DescribeSampler(header.sampler()) : "none") << "\n\n"
      << LayerTable(header);
  if (options.tensors) {
    std::vector<std::vector<std::string>> rows = {{"section", "dtype", "shape", "bytes"}};
    for (const SnapshotSection& section : Sections(header)) {
      rows.push_back({Printable(section.name()), Printable(section.dtype()),
                      absl::StrCat("[", absl::StrJoin(section.shape(), ", "), "]"),
                      FormatCount(static_cast<int64_t>(section.size()))});
    }
    out << "\n" << FormatTable(rows);
  }
  if (options.check) out << "\ncheck: every byte read, all checksums are right\n";
}

nlohmann::json LayersToJson(const SnapshotHeader& header) {
  nlohmann::json layers = nlohmann::json::array();
  const std::vector<std::string> kinds = MixerKinds(header);
  for (int i = 0; i < header.layers_size(); ++i) {
    const SnapshotLayer& layer = header.layers(i);
    layers.push_back({{"mixer", kinds[static_cast<size_t>(i)]},
                      {"rows", layer.rows()},
                      {"bytes", layer.bytes()},
                      {"in_rows", {layer.rows_begin(), layer.rows_end()}},
                      {"in_window", {layer.window_begin(), layer.window_end()}}});
  }
  return layers;
}

void PrintJson(const std::string& path, const SnapshotHeader& header, const InspectSnapshotOptions& options,
               std::ostream& out) {
  const SnapshotModel& model = header.model();
  nlohmann::json json = {{"path", path},
                         {"kind", "snapshot"},
                         {"position", header.position()},
                         {"state_bytes", StateBytes(header)},
                         {"file_bytes", FileBytes(path)},
                         {"has_logits", header.has_logits()},
                         {"model",
                          {{"fingerprint", Fingerprint(header)},
                           {"weights", model.weights()},
                           {"state", model.state()},
                           {"chunked_recurrences", model.chunked_recurrences()},
                           {"provenance", model.provenance()},
                           {"stack", model.stack()}}},
                         {"layers", LayersToJson(header)}};
  if (header.has_sampler()) {
    const SnapshotSampler& sampler = header.sampler();
    json["sampler"] = {{"temperature", sampler.temperature()},
                       {"top_k", sampler.top_k()},
                       {"top_p", sampler.top_p()},
                       {"min_p", sampler.min_p()},
                       {"repetition_penalty", sampler.repetition_penalty()},
                       {"seed", sampler.seed()},
                       {"draws", sampler.draws()}};
  }
  if (options.tensors) {
    json["sections"] = nlohmann::json::array();
    for (const SnapshotSection& section : Sections(header)) {
      json["sections"].push_back({{"name", section.name()},
                                  {"dtype", section.dtype()},
                                  {"shape", std::vector<int64_t>(section.shape().begin(), section.shape().end())},
                                  {"bytes", section.size()}});
    }
  }
  if (options.check) json["checked"] = true;
  out << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

absl::Status WriteMap(const std::string& path, const SnapshotHeader& header, const InspectSnapshotOptions& options) {
  const bool is_csv = absl::EndsWithIgnoreCase(options.map, ".csv");
  if (!is_csv && !absl::EndsWithIgnoreCase(options.map, ".svg")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--map=", options.map, ": expected a name that ends in .svg or .csv"));
  }
  if (IsSameFile(path, options.map)) {
    return absl::InvalidArgumentError(absl::StrCat("--map=", options.map, ": is the snapshot; expected another file"));
  }
  RETURN_IF_ERROR(CheckOutput(options.map, is_csv ? OutputKind::kRowList : OutputKind::kPicture, options.force));
  ASSIGN_OR_RETURN(const RowMap map, ReadRowMap(path, header, options.layer, options.head));
  const std::string name = std::filesystem::path(path).filename().string();
  return WriteFileAtomically(options.map, is_csv ? RowMapCsv(map) : DrawRowMap(map, Printable(name)));
}

}  // namespace

absl::Status InspectSnapshot(const std::string& path, const InspectSnapshotOptions& options, Console& console) {
  ASSIGN_OR_RETURN(const SnapshotHeader header, ReadSnapshotHeader(path));
  if (options.check) {
    const AbandonableStep checking(console);
    RETURN_IF_ERROR(CheckSnapshot(path));
  }
  if (!options.map.empty()) RETURN_IF_ERROR(WriteMap(path, header, options));
  if (options.json) {
    PrintJson(path, header, options, console.out);
  } else {
    PrintText(path, header, options, console.out);
  }
  return absl::OkStatus();
}

}  // namespace kvm
