#ifndef KVM_TOOLS_REPORT_ROW_MAP_H_
#define KVM_TOOLS_REPORT_ROW_MAP_H_

// What a KVM layer kept of a text: the row that every token went to, as a snapshot made with --provenance has it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvm/state/snapshot/snapshot.pb.h"

namespace kvm {

struct RowMap {
  int64_t layer = 0;
  int64_t head = 0;
  int64_t position = 0;      // tokens in all
  int64_t window_begin = 0;  // those from here on are kept as they are
  int64_t num_rows = 0;
  std::vector<int32_t> row_of_token;  // of the tokens that rows have taken in, from the first on
};

// Reads one key/value head of a layer, by default of the first layer that has a map; `header` is the file's.
// InvalidArgument for a snapshot without maps, for a layer or head that has none, naming those that have, and for a
// damaged file.
absl::StatusOr<RowMap> ReadRowMap(const std::string& path, const SnapshotHeader& header, std::optional<int64_t> layer,
                                  int64_t head);

// A picture of positions against rows, as SVG. The first token of a row is shown as the one that it was appended for
// and all others as merged into it; within one chunk an earlier token may have joined the row of a later one. Long
// texts and many rows are binned: the file stays below a megabyte.
std::string DrawRowMap(const RowMap& map, const std::string& name);

// "position,row" and a line for every token.
std::string RowMapCsv(const RowMap& map);

}  // namespace kvm

#endif  // KVM_TOOLS_REPORT_ROW_MAP_H_
