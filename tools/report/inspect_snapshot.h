#ifndef KVM_TOOLS_REPORT_INSPECT_SNAPSHOT_H_
#define KVM_TOOLS_REPORT_INSPECT_SNAPSHOT_H_

// `kvm inspect` of a snapshot of a session. Needs no model.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tools/cli/console.h"

namespace kvm {

struct InspectSnapshotOptions {
  bool tensors = false;  // list every section
  bool check = false;    // read every byte
  bool json = false;
  std::string map;  // picture (.svg) or table (.csv) of rows against positions to write; empty: none
  std::optional<int64_t> layer;
  int64_t head = 0;
  bool force = false;  // replace what is there
};

// Prints what the file holds, and writes options.map. Errors as ReadSnapshotHeader and CheckSnapshot, ReadRowMap and
// AtomicFile; InvalidArgument for a map that is neither .svg nor .csv.
absl::Status InspectSnapshot(const std::string& path, const InspectSnapshotOptions& options, Console& console);

}  // namespace kvm

#endif  // KVM_TOOLS_REPORT_INSPECT_SNAPSHOT_H_
