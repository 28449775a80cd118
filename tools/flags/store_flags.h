#ifndef KVM_TOOLS_FLAGS_STORE_FLAGS_H_
#define KVM_TOOLS_FLAGS_STORE_FLAGS_H_

// The state store of a model, as commands use it.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/state/model_identity.h"
#include "kvm/state/snapshot/session.h"
#include "kvm/state/store/state_store.h"
#include "tools/cli/console.h"
#include "tools/cli/flag_set.h"
#include "tools/flags/model_flags.h"

namespace kvm {

struct StoreFlags {
  std::string folder;
  int64_t snapshots = 4;       // per doubling of the position; 0: none
  std::string bytes = "10GB";  // of all snapshot files
};

// Adds --store and the variable beside it.
void DefineStoreFlag(FlagSet& flags, std::string* folder);
// Adds --store, --store-snapshots and --store-bytes.
void DefineStoreFlags(FlagSet& flags, StoreFlags* values);
// UsageError for values that mean nothing.
absl::Status CheckStoreFlags(const FlagSet& flags, const StoreFlags& values);

// Opens the store for a model that was loaded with its identity; the store must not outlive it, nor the
// context, on whose threads files are read. Says on console.err
// which of the folder's files are of no use. Errors as StateStore::Open.
absl::StatusOr<std::unique_ptr<StateStore>> OpenStore(const StoreFlags& values, const LoadedModel& loaded,
                                                      ExecutionContext& context, Console& console);

// Whether there is a session of this name. InvalidArgument for what is no name; NotFound, with the nearest name;
// otherwise why its file cannot be used, and with which flags it can.
absl::Status CheckStored(const StateStore& store, const std::string& name, const ModelIdentity& identity);

// Whether SaveAs may take this name: not that of a file of another model, or of this one with other options, nor one
// whose file cannot be written.
absl::Status CheckCanSaveAs(const StoreFlags& values, const StateStore& store, const std::string& name);

// Why nothing of a prompt that Create() was asked for was stored, to be put in parentheses; "" when something was.
std::string WhyNothingWasReused(const StateStore& store);

// Keeps the lease's session as it is for other prompts, if it stands at a boundary and --store-snapshots wants it.
absl::Status OfferAtBoundary(const StoreFlags& values, SessionLease& lease);

// Keeps it wherever it stands, if --store-snapshots wants any: at the end of a prompt, or of what was read of one.
absl::Status KeepEnd(const StoreFlags& values, SessionLease& lease);

// Writes what is to be kept for other prompts. What cannot be is a note on console.err, and so is `offered`: it costs
// later commands time, and nothing else is the worse for it.
void SaveSnapshots(StateStore& store, absl::Status offered, Console& console);

// Says on console.err that what was read of a prompt before Ctrl-C is kept, if it is.
void NoteKept(const StoreFlags& values, int64_t tokens, Console& console);

// Extends the lease's session by `tokens`, with offers and with progress on the console, and writes the store's
// snapshots, also when it is interrupted: then of what was read. No sampler is set. Interrupted when the user is; the
// errors of Generate.
absl::Status FeedLease(const StoreFlags& values, const LoadedModel& loaded, absl::Span<const int32_t> tokens,
                       StateStore& store, SessionLease& lease, ExecutionContext& context, Console& console);

// Writes a copy of the session to the store under this name, in place of whatever session has it. A damaged file that
// is in the way gets another name, which is said on console.err. Errors as StateStore's Create, Lease and Save; then
// what was there is still there.
absl::Status SaveAs(const StoreFlags& values, const std::string& name, const Session& session, StateStore& store,
                    Console& console);

}  // namespace kvm

#endif  // KVM_TOOLS_FLAGS_STORE_FLAGS_H_
