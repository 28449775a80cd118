#include "tools/flags/store_flags.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/nearest_name.h"
#include "kvm/base/status_macros.h"
#include "kvm/model/engine/state_size.h"
#include "kvm/model/generator.h"
#include "kvm/state/store/store_folder.h"
#include "tools/cli/command_status.h"
#include "tools/cli/format.h"
#include "tools/cli/machine.h"
#include "tools/cli/note.h"
#include "tools/cli/progress.h"
#include "tools/flags/snapshot_advice.h"

namespace kvm {
namespace {

Retention RetentionOf(const StoreFlags& values) {
  Retention retention;
  retention.chunk = kPromptPiece;
  retention.per_doubling = std::max<int64_t>(1, values.snapshots);
  retention.recent = 0;  // a command ends before anybody could come back to them
  return retention;
}

// Weights and what is being computed need room, too.
int64_t MemoryBudget() {
  const int64_t memory = UsableMemory();
  return memory > 0 ? memory / 2 : std::numeric_limits<int64_t>::max() / 4;
}

std::vector<std::string> NamesIn(const StateStore& store) {
  std::vector<std::string> names;
  for (const SessionInfo& session : store.List()) names.push_back(session.name);
  return names;
}

bool Has(const StateStore& store, const std::string& name) {
  const std::vector<std::string> names = NamesIn(store);
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string SessionPath(const StoreFlags& values, const std::string& name) {
  return absl::StrCat(values.folder, "/sessions/", name, ".kvmstate");
}

// The file of this name that the store does not use; null: none.
const SkippedFile* FindSkipped(const StateStore& store, const std::string& name) {
  for (const SkippedFile& file : store.skipped_files()) {
    if (absl::EndsWith(file.path, absl::StrCat("/sessions/", name, ".kvmstate"))) return &file;
  }
  return nullptr;
}

void NoteDamaged(const absl::Status& why, const std::string& moved_to, Console& console) {
  PrintNote(console, absl::StrCat(why.message(), moved_to.empty() ? "" : "; moved to ", moved_to));
}

// A damage that the header does not show comes out when a session is read.
absl::StatusOr<SessionLease> LeaseToReplace(const StoreFlags& values, const std::string& name, StateStore& store,
                                            Console& console) {
  if (!Has(store, name)) return store.Create(name, {}, 0);
  absl::StatusOr<SessionLease> lease = store.Lease(name, 0);
  if (!absl::IsInvalidArgument(lease.status())) return lease;
  ASSIGN_OR_RETURN(const std::string aside, MoveAside(SessionPath(values, name)));
  NoteDamaged(lease.status(), aside, console);
  RETURN_IF_ERROR(store.Drop(name));
  return store.Create(name, {}, 0);
}

}  // namespace

void DefineStoreFlag(FlagSet& flags, std::string* folder) {
  flags.String("store", folder, "DIR", "folder of the state store");
  flags.ReadFromEnvironment("store", "KVM_STORE");
}

void DefineStoreFlags(FlagSet& flags, StoreFlags* values) {
  DefineStoreFlag(flags, &values->folder);
  flags.Int64("store-snapshots", &values->snapshots, 0, 1024,
              "snapshots to keep from a position to its double: a power of two, or 0 for none");
  flags.String("store-bytes", &values->bytes, "BYTES",
               "the most that snapshots take on disk, 10GB, 500MB, ...: the oldest go, sessions never do");
  flags.ReadFromEnvironment("store-bytes", "KVM_STORE_BYTES");
}

absl::Status CheckStoreFlags(const FlagSet& flags, const StoreFlags& values) {
  if (!ParseByteSize(values.bytes).has_value()) {
    return flags.Wrong(absl::StrCat(flags.Source("store-bytes"), "=", values.bytes, ": expected ", kByteSizes));
  }
  if ((values.snapshots & (values.snapshots - 1)) == 0) return absl::OkStatus();
  return flags.Wrong(absl::StrCat("--store-snapshots=", values.snapshots, ": expected a power of two, or 0 for none"));
}

absl::StatusOr<std::unique_ptr<StateStore>> OpenStore(const StoreFlags& values, const LoadedModel& loaded,
                                                      ExecutionContext& context, Console& console) {
  StateStoreOptions options;
  options.folder = values.folder;
  options.memory_budget = MemoryBudget();
  options.snapshot_budget = ParseByteSize(values.bytes).value_or(0);
  options.retention = RetentionOf(values);
  options.pool = &context.pool;
  StoreModel about;
  const LanguageModel* const model = loaded.model.get();
  const ModelOptions of_model = loaded.options;
  about.identity = *loaded.identity;
  about.new_sequence = [model] { return model->NewSequence(); };
  about.bytes_at = [model, of_model](int64_t tokens) {
    return SequenceStateSize(model->spec(), of_model.state, tokens, of_model.provenance).bytes;
  };
  about.vocab_size = model->vocab_size();
  ASSIGN_OR_RETURN(std::unique_ptr<StateStore> store, StateStore::Open(std::move(options), std::move(about)));
  for (const SkippedFile& file : store->skipped_files()) {
    // Those of other models are nobody's fault.
    if (absl::IsFailedPrecondition(file.why)) continue;
    NoteDamaged(file.why, file.moved_to, console);
  }
  return store;
}

absl::Status CheckStored(const StateStore& store, const std::string& name, const ModelIdentity& identity) {
  RETURN_IF_ERROR(CheckSessionName(name));
  if (Has(store, name)) return absl::OkStatus();
  const SkippedFile* skipped = FindSkipped(store, name);
  if (skipped != nullptr) return WithFlagsOfSnapshot(skipped->why, skipped->path, identity);
  return absl::NotFoundError(absl::StrCat("no session \"", name, "\" in the store",
                                          DidYouMean(name, NamesIn(store), ""), " (kvm session list)"));
}

absl::Status CheckCanSaveAs(const StoreFlags& values, const StateStore& store, const std::string& name) {
  RETURN_IF_ERROR(CheckSessionName(name));
  const SkippedFile* skipped = FindSkipped(store, name);
  if (skipped == nullptr || !skipped->moved_to.empty()) return AtomicFile::Create(SessionPath(values, name)).status();
  return absl::Status(skipped->why.code(),
                      absl::StrCat(skipped->why.message(), "; to save under this name all the same, ",
                                   "first kvm session drop ", name));
}

std::string WhyNothingWasReused(const StateStore& store) {
  const StateStoreStats stats = store.Stats();
  if (stats.nothing_stored > 0) return "nothing is stored yet of this model with these options";
  if (stats.unreadable > 0) return "what is stored of it cannot be read";
  if (stats.evicted > 0) return "what was stored of it had to go";
  if (stats.shorter_than_chunk + stats.first_tokens_differ > 0) return "nothing that is stored is a beginning of it";
  return "";
}

absl::Status OfferAtBoundary(const StoreFlags& values, SessionLease& lease) {
  if (values.snapshots == 0 || lease.session().state.position() % kPromptPiece != 0) return absl::OkStatus();
  return lease.Offer();
}

absl::Status KeepEnd(const StoreFlags& values, SessionLease& lease) {
  return values.snapshots == 0 ? absl::OkStatus() : lease.Keep();
}

void SaveSnapshots(StateStore& store, absl::Status offered, Console& console) {
  offered.Update(store.SaveSnapshots());
  if (offered.ok()) return;
  const bool by_flag = absl::StrContains(offered.message(), "snapshot budget");
  PrintNote(console, absl::StrCat("not all snapshots are kept: ", offered.message(),
                                  by_flag ? "; --store-bytes says how many there may be" : ""));
}

void NoteKept(const StoreFlags& values, int64_t tokens, Console& console) {
  if (values.snapshots == 0 || tokens == 0) return;
  PrintNote(console, absl::StrCat("the first ", FormatCounted(tokens, "token"),
                                  " of the prompt are kept; the same command goes on from there"));
}

absl::Status FeedLease(const StoreFlags& values, const LoadedModel& loaded, absl::Span<const int32_t> tokens,
                       StateStore& store, SessionLease& lease, ExecutionContext& context, Console& console) {
  if (tokens.empty()) return absl::OkStatus();
  absl::Status offered, fed;
  {
    Progress progress(console, "prompt", "tokens", static_cast<int64_t>(tokens.size()));
    GeneratorOptions options;
    options.max_tokens = 0;
    options.on_prompt = [&](int64_t done) {
      progress.Update(done);
      offered.Update(OfferAtBoundary(values, lease));
      return !console.interrupted();
    };
    fed = Generate(*loaded.model, lease.session(), tokens, options, context, [](int32_t) { return true; }).status();
  }
  lease.session().sampler.reset();  // nothing was drawn
  const bool interrupted = console.interrupted();
  if (interrupted) offered.Update(KeepEnd(values, lease));
  SaveSnapshots(store, offered, console);
  if (!interrupted) return fed;
  NoteKept(values, lease.session().state.position(), console);
  return Interrupted();
}

absl::Status SaveAs(const StoreFlags& values, const std::string& name, const Session& session, StateStore& store,
                    Console& console) {
  ASSIGN_OR_RETURN(SessionLease lease, LeaseToReplace(values, name, store, console));
  lease.session() = session.Fork();
  RETURN_IF_ERROR(lease.Release());
  return store.Save(name);
}

}  // namespace kvm
