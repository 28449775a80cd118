#include "tools/cli/command_status.h"

#include "absl/strings/cord.h"
#include "absl/types/optional.h"

namespace kvm {
namespace {

constexpr absl::string_view kKind = "kvm/command_status";

absl::Status Make(absl::StatusCode code, absl::string_view message, absl::string_view kind) {
  absl::Status status(code, message);
  status.SetPayload(kKind, absl::Cord(kind));
  return status;
}

bool Is(const absl::Status& status, absl::string_view kind) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kKind);
  return payload.has_value() && *payload == kind;
}

}  // namespace

absl::Status UsageError(absl::string_view message) {
  return Make(absl::StatusCode::kInvalidArgument, message, "usage");
}

absl::Status HelpRequest(absl::string_view text) { return Make(absl::StatusCode::kCancelled, text, "help"); }

absl::Status Interrupted() { return Make(absl::StatusCode::kCancelled, "interrupted", "interrupted"); }

absl::Status OutputClosed() {
  return Make(absl::StatusCode::kDataLoss, "cannot write the results: the output is closed or full", "output");
}

bool IsUsageError(const absl::Status& status) { return Is(status, "usage"); }
bool IsHelpRequest(const absl::Status& status) { return Is(status, "help"); }
bool IsInterrupted(const absl::Status& status) { return absl::IsCancelled(status) && !IsHelpRequest(status); }
bool IsOutputClosed(const absl::Status& status) { return Is(status, "output"); }

}  // namespace kvm
