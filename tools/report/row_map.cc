#include "tools/report/row_map.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "kvm/base/status_macros.h"
#include "kvm/state/snapshot/snapshot.h"
#include "tools/cli/format.h"
#include "tools/report/svg_chart.h"

namespace kvm {
namespace {

constexpr char kAppendedColor[] = "#0b4f9e";
constexpr char kMergedColor[] = "#f0a04b";
constexpr char kWindowColor[] = "#e6f4ea";

// Of the raster that long texts are binned to.
constexpr int64_t kMaxColumns = 394;
constexpr int64_t kMaxLines = 195;

std::string MapName(int64_t layer, int64_t head) {
  return absl::StrCat("layer.", layer, ".mixer.head.", head, ".row_of_token");
}

// "layer.3.mixer.head.0.row_of_token" has layer 3 and head 0.
struct MapPlace {
  int64_t layer = -1;
  int64_t head = -1;
};

MapPlace ParseMapName(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  MapPlace place;
  if (parts.size() != 6 || !absl::SimpleAtoi(parts[1], &place.layer) || !absl::SimpleAtoi(parts[4], &place.head) ||
      name != MapName(place.layer, place.head)) {
    return {};
  }
  return place;
}

absl::Status CheckRows(const RowMap& map, const std::string& path) {
  const int64_t tokens = static_cast<int64_t>(map.row_of_token.size());
  for (int64_t t = 0; t < tokens; ++t) {
    // Every row was made for some token.
    if (map.row_of_token[t] >= 0 && map.row_of_token[t] < tokens) continue;
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", MapName(map.layer, map.head), ": token ", t,
                                                   " is in row ", map.row_of_token[t], "; expected 0 to ", tokens - 1));
  }
  return absl::OkStatus();
}

// Ticks at multiples of 1, 2 or 5 times a power of ten.
ChartAxis CountAxis(const std::string& title, int64_t count) {
  ChartAxis axis;
  axis.title = title;
  axis.max = static_cast<double>(std::max<int64_t>(count, 1));
  int64_t step = 1;
  for (int i = 0; count / step > 8; ++i) step = i % 3 == 1 ? step / 2 * 5 : step * 2;
  for (int64_t value = 0; value <= count; value += step) {
    axis.ticks.push_back({static_cast<double>(value), FormatCount(value)});
  }
  return axis;
}

// Which cells of a raster hold something.
class Raster {
 public:
  Raster(int64_t width, int64_t height)
      : width_(width),
        height_(height),
        columns_(std::min(width, kMaxColumns)),
        lines_(std::min(height, kMaxLines)),
        filled_(static_cast<size_t>(columns_ * lines_)) {}

  void Fill(int64_t x, int64_t y) {
    filled_[static_cast<size_t>(y * lines_ / height_ * columns_ + x * columns_ / width_)] = true;
  }

  // Neighbours in a line become one cell.
  ChartCells Cells(const std::string& label, const std::string& color) const {
    const double cell_width = static_cast<double>(width_) / static_cast<double>(columns_);
    ChartCells cells{label, color, static_cast<double>(height_) / static_cast<double>(lines_), {}};
    for (int64_t line = 0; line < lines_; ++line) {
      for (int64_t begin = 0; begin < columns_;) {
        int64_t end = begin;
        while (end < columns_ && filled_[static_cast<size_t>(line * columns_ + end)]) ++end;
        if (end > begin) {
          cells.cells.push_back({static_cast<double>(begin) * cell_width, static_cast<double>(line) * cells.height,
                                 static_cast<double>(end - begin) * cell_width});
        }
        begin = end + 1;
      }
    }
    return cells;
  }

 private:
  int64_t width_, height_, columns_, lines_;
  std::vector<bool> filled_;
};

}  // namespace

absl::StatusOr<RowMap> ReadRowMap(const std::string& path, const SnapshotHeader& header, std::optional<int64_t> layer,
                                  int64_t head) {
  std::set<int64_t> layers;
  std::set<int64_t> heads;  // of the layer
  for (const SnapshotSection& tensor : header.tensors()) {
    const MapPlace place = ParseMapName(tensor.name());
    if (place.layer >= 0) layers.insert(place.layer);
  }
  if (layers.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": no record of which row each token went to; expected a snapshot with rows that was made with --provenance"));
  }
  RowMap map;
  map.layer = layer.value_or(*layers.begin());
  map.head = head;
  for (const SnapshotSection& tensor : header.tensors()) {
    const MapPlace place = ParseMapName(tensor.name());
    if (place.layer == map.layer) heads.insert(place.head);
  }
  if (heads.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": layer ", map.layer, " has no rows; expected one of ", absl::StrJoin(layers, ", ")));
  }
  if (heads.count(head) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": layer ", map.layer, " has no key/value head ", head,
                                                   "; expected one of ", absl::StrJoin(heads, ", ")));
  }
  ASSIGN_OR_RETURN(map.row_of_token, ReadSnapshotInts(path, MapName(map.layer, map.head)));
  RETURN_IF_ERROR(CheckRows(map, path));
  map.num_rows = 1 + *std::max_element(map.row_of_token.begin(), map.row_of_token.end());
  map.position = std::max(header.position(), static_cast<int64_t>(map.row_of_token.size()));
  map.window_begin = static_cast<int64_t>(map.row_of_token.size());
  if (map.layer < header.layers_size()) map.window_begin = header.layers(static_cast<int>(map.layer)).window_begin();
  map.window_begin = std::min(std::max<int64_t>(map.window_begin, 0), map.position);
  return map;
}

std::string DrawRowMap(const RowMap& map, const std::string& name) {
  const int64_t tokens = static_cast<int64_t>(map.row_of_token.size());
  Raster appended(map.position, map.num_rows), merged(map.position, map.num_rows);
  std::vector<bool> has_token(static_cast<size_t>(map.num_rows));
  int64_t num_merged = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    const size_t row = static_cast<size_t>(map.row_of_token[t]);
    num_merged += has_token[row];
    (has_token[row] ? merged : appended).Fill(t, map.row_of_token[t]);
    has_token[row] = true;
  }
  Chart chart;
  chart.title = absl::StrCat("Where the tokens went: layer ", map.layer, ", head ", map.head);
  chart.subtitle = absl::StrCat(name, ": ", FormatCount(tokens), " of ", FormatCount(map.position), " tokens in ",
                                FormatCounted(map.num_rows, "row"));
  chart.x = CountAxis("position", map.position);
  chart.y = CountAxis("row", map.num_rows);
  chart.cells = {merged.Cells(absl::StrCat("merged: ", FormatCount(num_merged)), kMergedColor),
                 appended.Cells(absl::StrCat("appended: ", FormatCount(tokens - num_merged)), kAppendedColor)};
  chart.bands = {{absl::StrCat("window: ", FormatCount(map.position - map.window_begin)), kWindowColor,
                  static_cast<double>(map.window_begin), static_cast<double>(map.position)}};
  return RenderSvg(chart);
}

std::string RowMapCsv(const RowMap& map) {
  std::string csv = "position,row\n";
  for (size_t t = 0; t < map.row_of_token.size(); ++t) absl::StrAppend(&csv, t, ",", map.row_of_token[t], "\n");
  return csv;
}

}  // namespace kvm
