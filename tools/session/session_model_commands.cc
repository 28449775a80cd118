#include "tools/session/session_model_commands.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kvm/base/status_macros.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/state/snapshot/session.h"
#include "kvm/state/snapshot/snapshot.h"
#include "kvm/state/store/state_store.h"
#include "kvm/state/store/store_folder.h"
#include "tools/cli/flag_set.h"
#include "tools/cli/format.h"
#include "tools/cli/output_paths.h"
#include "tools/flags/model_flags.h"
#include "tools/flags/prompt_flags.h"
#include "tools/flags/snapshot_advice.h"
#include "tools/flags/store_flags.h"
#include "tools/session/store_files.h"

namespace kvm {
namespace {

struct SaveFlags {
  ModelFlags model;
  PromptFlags prompt;
  StoreFlags store;
  std::string from;
  std::string name;
};

// Before any work. There may be no store yet.
absl::Status CheckNameIsFree(const std::string& store, const std::string& name) {
  RETURN_IF_ERROR(CheckSessionName(name));
  const absl::StatusOr<StoreFolder> folder = OpenStoreFolder(store);
  if (absl::IsNotFound(folder.status())) return CheckCanMakeFolder(store);
  RETURN_IF_ERROR(folder.status());
  return NewSessionFile(*folder, name).status();
}

// Takes a snapshot file into the store. With a model given, it must be one of its.
absl::Status SaveFile(const FlagSet& flags, const SaveFlags& values, Console& console) {
  if (!values.model.model.empty()) {
    ExecutionContext context(static_cast<int>(values.model.threads));
    ASSIGN_OR_RETURN(const LoadedModel loaded, LoadModel(flags, values.model, context, console, /*identify=*/true));
    const absl::Status read =
        ReadSnapshot(values.from, *loaded.identity, loaded.model->NewSequence(), &context.pool).status();
    RETURN_IF_ERROR(WithFlagsOfSnapshot(read, values.from, *loaded.identity));
  }
  RETURN_IF_ERROR(CheckSnapshot(values.from));  // before a folder is made
  ASSIGN_OR_RETURN(const StoreFolder folder, StoreFolder::Open(values.store.folder));
  ASSIGN_OR_RETURN(const std::string to, NewSessionFile(folder, values.name));
  RETURN_IF_ERROR(CopySnapshot(values.from, to));
  ASSIGN_OR_RETURN(const SnapshotHeader header, ReadSnapshotHeader(to));
  console.out << "saved " << values.name << ": " << FormatCounted(header.position(), "token") << " from " << values.from
              << "\n";
  return absl::OkStatus();
}

// Has the model read the prompt, as far as the store has not.
absl::Status SavePrompt(const FlagSet& flags, const SaveFlags& values, Console& console) {
  ExecutionContext context(static_cast<int>(values.model.threads));
  ASSIGN_OR_RETURN(const LoadedModel loaded, LoadModel(flags, values.model, context, console, /*identify=*/true));
  ASSIGN_OR_RETURN(const Prompt prompt, ReadPrompt(flags, values.prompt, values.model, loaded, console));
  ASSIGN_OR_RETURN(const std::unique_ptr<StateStore> store, OpenStore(values.store, loaded, context, console));
  ASSIGN_OR_RETURN(SessionLease lease, store->Create(values.name, prompt.tokens, 0));
  const int64_t reused = lease.session().state.position();
  const std::string why = WhyNothingWasReused(*store);
  RETURN_IF_ERROR(FeedLease(values.store, loaded, absl::MakeConstSpan(prompt.tokens).subspan(reused), *store, lease,
                            context, console));
  const int64_t bytes = lease.session().state.ByteSize();
  RETURN_IF_ERROR(lease.Release());
  RETURN_IF_ERROR(store->Save(values.name));
  console.out << "saved " << values.name << ": " << FormatCounted(static_cast<int64_t>(prompt.tokens.size()), "token")
              << ", " << FormatCount(reused) << " of them reused" << (why.empty() ? "" : absl::StrCat(" (", why, ")"))
              << "; state: " << FormatBytes(bytes) << "\n";
  return absl::OkStatus();
}

absl::Status RunSave(absl::Span<const std::string> args, Console& console) {
  FlagSet flags(
      "session save", "NAME --store=DIR (--model=DIR --prompt=TEXT | --from=FILE)",
      "Has a model read a prompt and keeps the state that it is in as NAME; what the store has of the prompt\n"
      "already is not read again. Or takes a snapshot file into the store.");
  SaveFlags values;
  std::vector<std::string> names;
  flags.Positionals(&names);
  DefineStoreFlags(flags, &values.store);
  DefineModelFlags(flags, &values.model);
  DefineProvenanceFlag(flags, &values.model);
  DefinePromptFlags(flags, &values.prompt);
  flags.String("from", &values.from, "FILE", "a snapshot file; with --model it must be of that model");
  RETURN_IF_ERROR(flags.Parse(args));
  RETURN_IF_ERROR(CheckPromptFlags(flags, values.prompt, /*continues_session=*/false));
  RETURN_IF_ERROR(CheckStoreFlags(flags, values.store));
  if (names.size() != 1) return flags.Wrong("expected the NAME of the new session");
  if (values.store.folder.empty()) return flags.Wrong("--store is missing: the folder of the state store");
  if (HasPrompt(flags) == flags.IsSet("from")) return flags.Wrong("give a prompt or --from, one of them");
  values.name = names[0];
  RETURN_IF_ERROR(CheckNameIsFree(values.store.folder, values.name));
  return flags.IsSet("from") ? SaveFile(flags, values, console) : SavePrompt(flags, values, console);
}

struct RestoreFlags {
  ModelFlags model;
  StoreFlags store;
  std::string name;
  std::string out;
  int64_t position = 0;
  bool force = false;
};

// What the store has of a session before any model is loaded.
struct StoredFile {
  std::string path;
  SnapshotHeader header;
  std::vector<int32_t> tokens;
};

absl::StatusOr<StoredFile> FindStoredFile(const RestoreFlags& values) {
  ASSIGN_OR_RETURN(const StoreFolder folder, OpenStoreFolder(values.store.folder));
  StoredFile file;
  ASSIGN_OR_RETURN(file.path, FindSessionFile(folder, values.name));
  ASSIGN_OR_RETURN(file.header, ReadSnapshotHeader(file.path));
  ASSIGN_OR_RETURN(file.tokens, ReadSnapshotTokens(file.path));
  return file;
}

// A state cannot be rewound: the nearest snapshot before the position is taken, and what follows it is read again. The
// session that is stored stays as it is.
absl::Status RestorePosition(const FlagSet& flags, const RestoreFlags& values, const StoredFile& file,
                             Console& console) {
  ExecutionContext context(static_cast<int>(values.model.threads));
  ASSIGN_OR_RETURN(const LoadedModel loaded, LoadModel(flags, values.model, context, console, /*identify=*/true));
  const absl::Status of_model = CheckSnapshotModel(file.header, *loaded.identity, file.path);
  RETURN_IF_ERROR(WithFlagsOfSnapshot(of_model, file.path, *loaded.identity));
  ASSIGN_OR_RETURN(const std::unique_ptr<StateStore> store, OpenStore(values.store, loaded, context, console));
  const absl::Span<const int32_t> tokens = absl::MakeConstSpan(file.tokens).first(values.position);
  ASSIGN_OR_RETURN(SessionLease lease, store->Create("", tokens, 0));
  const int64_t nearest = lease.session().state.position();
  RETURN_IF_ERROR(FeedLease(values.store, loaded, tokens.subspan(nearest), *store, lease, context, console));
  RETURN_IF_ERROR(WriteSnapshot(values.out, lease.session(), *loaded.identity));
  console.out << values.out << ": " << values.name << " at position " << FormatCount(values.position) << ", "
              << (nearest == 0 ? "from the beginning" : absl::StrCat("from the snapshot at ", FormatCount(nearest)))
              << ", " << FormatCounted(values.position - nearest, "token") << " read again\n";
  return absl::OkStatus();
}

// Whether --out can be written: the store's own files are its alone.
absl::Status CheckOut(const RestoreFlags& values) {
  if (IsInFolder(values.out, values.store.folder)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--out=", values.out, " lies in the folder of the store; expected a path outside"));
  }
  return CheckOutput(values.out, OutputKind::kSnapshot, values.force);
}

absl::Status Restore(const FlagSet& flags, const RestoreFlags& values, Console& console) {
  RETURN_IF_ERROR(CheckOut(values));
  ASSIGN_OR_RETURN(const StoredFile file, FindStoredFile(values));
  const int64_t length = static_cast<int64_t>(file.tokens.size());
  if (values.position > length) {
    return absl::OutOfRangeError(
        absl::StrCat(values.name, ": cannot go back to position ", values.position, ": expected 1 to ", length));
  }
  if (flags.IsSet("position") && values.position < length) return RestorePosition(flags, values, file, console);
  RETURN_IF_ERROR(CopySnapshot(file.path, values.out));
  console.out << values.out << ": " << values.name << ", " << FormatCounted(length, "token") << "\n";
  return absl::OkStatus();
}

absl::Status RunRestore(absl::Span<const std::string> args, Console& console) {
  FlagSet flags("session restore", "NAME --store=DIR --out=FILE [--position=N --model=DIR]",
                "Writes a session as a snapshot file. With --position as it was after its first N tokens: from the\n"
                "nearest snapshot before, and the model reads the tokens from there again.");
  RestoreFlags values;
  std::vector<std::string> names;
  flags.Positionals(&names);
  DefineStoreFlags(flags, &values.store);
  DefineModelFlags(flags, &values.model);
  DefineProvenanceFlag(flags, &values.model);
  flags.String("out", &values.out, "FILE", "the snapshot file to write");
  DefineForceFlag(flags, &values.force);
  flags.Int64("position", &values.position, 1, kMaxPosition, "go back to this many tokens");
  RETURN_IF_ERROR(flags.Parse(args));
  RETURN_IF_ERROR(CheckStoreFlags(flags, values.store));
  if (names.size() != 1) return flags.Wrong("expected the NAME of a session");
  if (values.store.folder.empty()) return flags.Wrong("--store is missing: the folder of the state store");
  if (values.out.empty()) return flags.Wrong("--out is missing: the snapshot file to write");
  values.name = names[0];
  return Restore(flags, values, console);
}

}  // namespace

Command SessionSaveCommand() { return {"save", "keeps what a model has read, or a snapshot file", RunSave}; }
Command SessionRestoreCommand() { return {"restore", "writes a session as a snapshot file", RunRestore}; }

}  // namespace kvm
