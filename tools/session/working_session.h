#ifndef KVM_TOOLS_SESSION_WORKING_SESSION_H_
#define KVM_TOOLS_SESSION_WORKING_SESSION_H_

// The sequence that `kvm generate` goes on with: where it comes from and where it is kept.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/state/snapshot/session.h"
#include "kvm/state/store/state_store.h"
#include "tools/cli/console.h"
#include "tools/cli/flag_set.h"
#include "tools/flags/model_flags.h"
#include "tools/flags/store_flags.h"

namespace kvm {

// Names in the store where there is one, else paths of snapshot files.
struct SessionFlags {
  std::string session;
  std::string save_session;
  bool force = false;  // of files
  StoreFlags store;

  // Whether any of it was asked for, so that the model has to be identified.
  bool any() const { return !session.empty() || !save_session.empty() || !store.folder.empty(); }
};

// Adds --session, --save-session and the store's flags.
void DefineSessionFlags(FlagSet& flags, SessionFlags* values);

struct WorkingSession {
  std::unique_ptr<StateStore> store;  // null: none
  std::optional<SessionLease> lease;  // of `store`
  Session own;                        // without one
  int64_t continued = 0;              // tokens of --session
  bool reuses = false;                // whether stored beginnings of the prompt were looked for
  int64_t reused = 0;                 // tokens of the prompt that were stored
  std::string why_nothing;            // was reused; "" when something was

  Session& session() { return lease.has_value() ? lease->session() : own; }
};

// The session of --session; without it the longest stored beginning of the prompt, or a new sequence. Finds out before
// any work whether --save-session can be written. Errors name the file or session: those of ReadSnapshot and
// StateStore, and of CheckStored.
absl::StatusOr<WorkingSession> OpenWorkingSession(const SessionFlags& values, const LoadedModel& loaded,
                                                  absl::Span<const int32_t> prompt, ExecutionContext& context,
                                                  Console& console);

// Writes --save-session, if given, and says so on console.err. Nothing is half-written.
absl::Status SaveWorkingSession(const SessionFlags& values, const LoadedModel& loaded, WorkingSession& working,
                                Console& console);

}  // namespace kvm

#endif  // KVM_TOOLS_SESSION_WORKING_SESSION_H_
