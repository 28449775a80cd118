#include "tools/session/session_files_commands.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/state/snapshot/snapshot.h"
#include "kvm/state/store/store_folder.h"
#include "nlohmann/json.hpp"
#include "tools/cli/flag_set.h"
#include "tools/cli/format.h"
#include "tools/cli/note.h"
#include "tools/flags/store_flags.h"
#include "tools/session/store_files.h"

namespace kvm {
namespace {

absl::Status RequireStore(const FlagSet& flags, const std::string& store) {
  return store.empty() ? flags.Wrong("--store is missing: the folder of the state store") : absl::OkStatus();
}

absl::Status RunFork(absl::Span<const std::string> args, Console& console) {
  FlagSet flags("session fork", "NAME NEW --store=DIR", "Copies a session under a new name. Both go on independently.");
  std::string store;
  std::vector<std::string> names;
  flags.Positionals(&names);
  DefineStoreFlag(flags, &store);
  RETURN_IF_ERROR(flags.Parse(args));
  RETURN_IF_ERROR(RequireStore(flags, store));
  if (names.size() != 2) return flags.Wrong("expected the NAME of a session and a NEW one");
  ASSIGN_OR_RETURN(const StoreFolder folder, OpenStoreFolder(store));
  ASSIGN_OR_RETURN(const std::string from, FindSessionFile(folder, names[0]));
  ASSIGN_OR_RETURN(const std::string to, NewSessionFile(folder, names[1]));
  RETURN_IF_ERROR(CopySnapshot(from, to));
  console.out << "forked " << names[0] << " as " << names[1] << "\n";
  return absl::OkStatus();
}

struct ListedSession {
  StoreFolder::File file;
  SnapshotHeader header;

  int64_t rows() const {
    int64_t most = 0;
    for (const SnapshotLayer& layer : header.layers()) most = std::max(most, layer.rows());
    return most;
  }
  std::string model() const { return absl::StrCat(absl::Hex(header.model().fingerprint(), absl::kZeroPad16)); }
};

struct Listing {
  std::vector<ListedSession> sessions;
  std::vector<std::pair<std::string, std::string>> unreadable;  // or with an odd name: path and why
  int64_t snapshots = 0;
  int64_t snapshot_bytes = 0;
};

absl::StatusOr<Listing> ReadListing(const std::string& store) {
  ASSIGN_OR_RETURN(const StoreFolder folder, OpenStoreFolder(store));
  ASSIGN_OR_RETURN(const StoreFolder::Contents contents, folder.List());
  Listing listing;
  for (const StoreFolder::Odd& odd : contents.odd) listing.unreadable.emplace_back(odd.path, DescribeOdd(odd));
  for (const StoreFolder::File& file : contents.files) {
    if (file.session.empty()) {
      ++listing.snapshots;
      listing.snapshot_bytes += file.bytes;
      continue;
    }
    absl::StatusOr<SnapshotHeader> header = ReadSnapshotHeader(file.path);
    if (header.ok()) {
      listing.sessions.push_back({file, *std::move(header)});
    } else {
      listing.unreadable.emplace_back(file.path, std::string(header.status().message()));
    }
  }
  for (const StoreFolder::File& file : contents.damaged) {
    listing.unreadable.emplace_back(file.path, DescribeDamaged(file));
  }
  return listing;
}

constexpr size_t kLongestPath = 4096;

void PrintTable(const Listing& listing, std::ostream& out) {
  if (!listing.sessions.empty()) {
    std::vector<std::vector<std::string>> rows = {{"session", "tokens", "rows", "bytes", "model", "last use", "file"}};
    for (const ListedSession& session : listing.sessions) {
      rows.push_back({session.file.session, FormatCount(session.header.position()), FormatCount(session.rows()),
                      FormatBytes(session.file.bytes), session.model(),
                      absl::FormatTime("%Y-%m-%d %H:%M:%S", session.file.written, absl::LocalTimeZone()),
                      Printable(session.file.path, kLongestPath)});
    }
    out << FormatTable(rows);
  }
  out << FormatCounted(static_cast<int64_t>(listing.sessions.size()), "session") << ", "
      << FormatCounted(listing.snapshots, "snapshot") << " to start prompts from ("
      << FormatBytes(listing.snapshot_bytes) << ")\n";
}

void PrintJson(const std::string& store, const Listing& listing, std::ostream& out) {
  nlohmann::json json = {{"store", store},
                         {"sessions", nlohmann::json::array()},
                         {"snapshots", listing.snapshots},
                         {"snapshot_bytes", listing.snapshot_bytes},
                         {"unreadable", nlohmann::json::array()}};
  for (const ListedSession& session : listing.sessions) {
    const SnapshotModel& model = session.header.model();
    json["sessions"].push_back({{"name", session.file.session},
                                {"position", session.header.position()},
                                {"rows", session.rows()},
                                {"bytes", session.file.bytes},
                                {"file", session.file.path},
                                {"last_use", absl::FormatTime(session.file.written, absl::UTCTimeZone())},
                                {"fingerprint", session.model()},
                                {"weights", model.weights()},
                                {"state", model.state()},
                                {"provenance", model.provenance()}});
  }
  for (const auto& [path, why] : listing.unreadable) {
    json["unreadable"].push_back({{"file", path}, {"why", why}});
  }
  out << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

absl::Status RunList(absl::Span<const std::string> args, Console& console) {
  FlagSet flags(
      "session list", "--store=DIR [--json]",
      "Lists the sessions of a store: name, tokens, rows of the layer with most, bytes, the fingerprint of\n"
      "the model, when it was written last, and the file. Files that are damaged or that have no session's name are\n"
      "named on standard error.");
  std::string store;
  bool json = false;
  DefineStoreFlag(flags, &store);
  flags.Bool("json", &json, "print as JSON");
  RETURN_IF_ERROR(flags.Parse(args));
  RETURN_IF_ERROR(RequireStore(flags, store));
  ASSIGN_OR_RETURN(const Listing listing, ReadListing(store));
  for (const auto& [path, why] : listing.unreadable) PrintNote(console, why);
  if (json) {
    PrintJson(store, listing, console.out);
  } else {
    PrintTable(listing, console.out);
  }
  return absl::OkStatus();
}

// All of them are there before the first one goes. Naming one twice is naming it.
absl::Status DropSessions(const StoreFolder& folder, const std::vector<std::string>& given, Console& console) {
  std::vector<std::string> names;
  for (const std::string& name : given) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::vector<std::vector<std::string>> paths;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(paths.emplace_back(), FindAllSessionFiles(folder, name));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    for (const std::string& path : paths[i]) RETURN_IF_ERROR(RemoveFile(path));
    console.out << "dropped " << names[i] << "\n";
  }
  return absl::OkStatus();
}

absl::Status DropSnapshots(const StoreFolder& folder, Console& console) {
  ASSIGN_OR_RETURN(const StoreFolder::Contents contents, folder.List());
  int64_t count = 0, bytes = 0;
  for (const std::vector<StoreFolder::File>* files : {&contents.files, &contents.damaged}) {
    for (const StoreFolder::File& file : *files) {
      if (!file.session.empty()) continue;
      RETURN_IF_ERROR(RemoveFile(file.path));
      ++count;
      bytes += file.bytes;
    }
  }
  for (const StoreFolder::Odd& odd : contents.odd) {
    if (!odd.in_snapshots || odd.is_folder) continue;
    RETURN_IF_ERROR(RemoveFile(odd.path));
    ++count;
  }
  console.out << "dropped " << FormatCounted(count, "snapshot") << ", " << FormatBytes(bytes) << "\n";
  return absl::OkStatus();
}

absl::Status RunDrop(absl::Span<const std::string> args, Console& console) {
  FlagSet flags(
      "session drop", "NAME... --store=DIR [--snapshots]",
      "Deletes sessions, and damaged files of their names that were set aside. The snapshots that prompts start\n"
      "from go with --snapshots, damaged ones too.");
  std::string store;
  std::vector<std::string> names;
  bool snapshots = false;
  flags.Positionals(&names);
  DefineStoreFlag(flags, &store);
  flags.Bool("snapshots", &snapshots, "delete all snapshots that prompts start from");
  RETURN_IF_ERROR(flags.Parse(args));
  RETURN_IF_ERROR(RequireStore(flags, store));
  if (names.empty() && !snapshots) return flags.Wrong("expected the NAME of a session, or --snapshots");
  ASSIGN_OR_RETURN(const StoreFolder folder, OpenStoreFolder(store));
  RETURN_IF_ERROR(DropSessions(folder, names, console));
  return snapshots ? DropSnapshots(folder, console) : absl::OkStatus();
}

}  // namespace

Command SessionForkCommand() { return {"fork", "copies a session under a new name", RunFork}; }
Command SessionListCommand() { return {"list", "lists the sessions", RunList}; }
Command SessionDropCommand() { return {"drop", "deletes sessions", RunDrop}; }

}  // namespace kvm
