#include "tools/session/working_session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/status_macros.h"
#include "kvm/state/snapshot/snapshot.h"
#include "tools/cli/format.h"
#include "tools/cli/output_paths.h"
#include "tools/flags/snapshot_advice.h"

namespace kvm {
namespace {

// A copy: the session that is stored stays as it is.
absl::StatusOr<Session> CopyOfStored(StateStore& store, const std::string& name, const ModelIdentity& identity) {
  RETURN_IF_ERROR(CheckStored(store, name, identity));
  ASSIGN_OR_RETURN(SessionLease lease, store.Lease(name, 0));
  Session copy = lease.session().Fork();
  RETURN_IF_ERROR(lease.Release());
  return copy;
}

}  // namespace

void DefineSessionFlags(FlagSet& flags, SessionFlags* values) {
  flags.String("session", &values->session, "NAME|FILE",
               "go on with this session of the store, or without --store with this snapshot file");
  flags.String("save-session", &values->save_session, "NAME|FILE", "keep the session at the end, also after Ctrl-C");
  DefineForceFlag(flags, &values->force);
  DefineStoreFlags(flags, &values->store);
}

absl::StatusOr<WorkingSession> OpenWorkingSession(const SessionFlags& values, const LoadedModel& loaded,
                                                  absl::Span<const int32_t> prompt, ExecutionContext& context,
                                                  Console& console) {
  WorkingSession working;
  if (values.store.folder.empty()) {
    working.own.state = loaded.model->NewSequence();
    if (!values.session.empty()) {
      absl::StatusOr<Session> read =
          ReadSnapshot(values.session, *loaded.identity, std::move(working.own.state), &context.pool);
      if (!read.ok()) return WithFlagsOfSnapshot(read.status(), values.session, *loaded.identity);
      working.own = *std::move(read);
      working.continued = working.own.state.position();
    }
    if (!values.save_session.empty()) RETURN_IF_ERROR(AtomicFile::Create(values.save_session).status());
    return working;
  }
  ASSIGN_OR_RETURN(working.store, OpenStore(values.store, loaded, context, console));
  if (!values.save_session.empty()) {
    RETURN_IF_ERROR(CheckCanSaveAs(values.store, *working.store, values.save_session));
  }
  if (values.session.empty()) {
    ASSIGN_OR_RETURN(working.lease, working.store->Create("", prompt, 0));
    working.reuses = true;
    working.reused = working.session().state.position();
    working.why_nothing = WhyNothingWasReused(*working.store);
    return working;
  }
  ASSIGN_OR_RETURN(Session copy, CopyOfStored(*working.store, values.session, *loaded.identity));
  ASSIGN_OR_RETURN(working.lease, working.store->Create("", {}, 0));
  working.continued = copy.state.position();
  working.session() = std::move(copy);
  return working;
}

absl::Status SaveWorkingSession(const SessionFlags& values, const LoadedModel& loaded, WorkingSession& working,
                                Console& console) {
  const std::string& name = values.save_session;
  if (name.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(working.store != nullptr ? SaveAs(values.store, name, working.session(), *working.store, console)
                                           : WriteSnapshot(name, working.session(), *loaded.identity));
  console.err << "saved " << name << ": " << FormatCounted(working.session().state.position(), "token") << std::endl;
  return absl::OkStatus();
}

}  // namespace kvm
