#include "tools/flags/snapshot_advice.h"

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/kernels/dtype.h"
#include "kvm/state/snapshot/snapshot.h"

namespace kvm {
namespace {

// The value of --state for a dtype's name in a snapshot.
std::string StateFlag(const std::string& dtype) {
  return dtype == Name(DType::kI8) ? "int8" : absl::AsciiStrToLower(dtype);
}

}  // namespace

absl::Status WithFlagsOfSnapshot(const absl::Status& status, const std::string& path, const ModelIdentity& loaded) {
  if (!absl::IsFailedPrecondition(status)) return status;
  const absl::StatusOr<SnapshotHeader> header = ReadSnapshotHeader(path);
  if (!header.ok() || header->model().fingerprint() != loaded.fingerprint) return status;
  const SnapshotModel& made_by = header->model();
  std::vector<std::string> flags;
  if (made_by.weights() != Name(loaded.weights)) flags.push_back(absl::StrCat("--weights=", made_by.weights()));
  if (made_by.state() != Name(loaded.state)) flags.push_back(absl::StrCat("--state=", StateFlag(made_by.state())));
  if (made_by.chunked_recurrences() != loaded.chunked_recurrences) {
    flags.push_back(made_by.chunked_recurrences() ? "--chunked-recurrences" : "--nochunked-recurrences");
  }
  if (made_by.provenance() != loaded.provenance) {
    flags.push_back(made_by.provenance() ? "--provenance" : "--noprovenance");
  }
  if (flags.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), ": give ", absl::StrJoin(flags, " ")));
}

}  // namespace kvm
