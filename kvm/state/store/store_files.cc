// The files of a StateStore.

#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvm/base/file/content_hash.h"
#include "kvm/base/status_macros.h"
#include "kvm/state/snapshot/snapshot.h"
#include "kvm/state/store/store_records.h"

namespace kvm {
namespace {

// Names of snapshot files differ between models, so that no model's replaces another's.
uint64_t HashInName(const StorePoint& point, const ModelIdentity& identity) {
  ContentHash hash;
  hash.Add(absl::StrCat(identity.fingerprint, " ", Name(identity.weights), " ", Name(identity.state), " ",
                        identity.chunked_recurrences, " ", identity.provenance, " ", point.hash));
  return hash.Value();
}

int64_t FileBytes(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? static_cast<int64_t>(info.st_size) : 0;
}

// Where a file of this model stands.
absl::StatusOr<StorePoint> PointOfFile(const std::string& path, const ModelIdentity& identity) {
  ASSIGN_OR_RETURN(const SnapshotHeader header, ReadSnapshotHeader(path));
  RETURN_IF_ERROR(CheckSnapshotModel(header, identity, path));
  ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, ReadSnapshotTokens(path));
  return StorePoint{static_cast<int64_t>(tokens.size()), HashTokens(tokens), 0};
}

}  // namespace

absl::StatusOr<std::vector<SkippedFile>> StoreRecords::ReadFolder() {
  std::vector<SkippedFile> skipped;
  ASSIGN_OR_RETURN(StoreFolder::Contents contents, folder->List());
  for (const StoreFolder::Odd& odd : contents.odd) {
    skipped.push_back({odd.path, absl::InvalidArgumentError(odd.why), ""});
    if (!odd.session.empty()) unusable[odd.session] = odd.why;
  }
  std::set<std::string> pins;
  absl::StatusOr<std::set<std::string>> read_pins = folder->ReadPins();
  if (read_pins.ok()) {
    pins = *std::move(read_pins);
  } else {
    skipped.push_back({folder->PinsPath(), absl::InvalidArgumentError(read_pins.status().message()), ""});
  }
  // Those written last were used last, as far as one can tell.
  std::stable_sort(contents.files.begin(), contents.files.end(),
                   [](const StoreFolder::File& a, const StoreFolder::File& b) { return a.written < b.written; });
  for (const StoreFolder::File& file : contents.files) {
    const absl::StatusOr<StorePoint> point = PointOfFile(file.path, model.identity);
    if (point.ok()) {
      const StoreRecordPtr record = AddRecord(file.session, *point);
      record->path = file.path;
      record->in_file = *point;
      record->file_bytes = file.bytes;
      record->kept = file.session.empty();
      record->last_use = file.written;
      record->pinned = pins.count(file.session) > 0;
      stats.disk_bytes += file.bytes;
      AddToIndex(*record);
      continue;
    }
    if (file.session.empty() && IsSnapshotName(file.path)) other_snapshots.push_back(file);
    SkippedFile skip = {file.path, point.status(), ""};
    if (absl::IsInvalidArgument(point.status())) {
      const absl::StatusOr<std::string> aside = MoveAside(file.path);
      if (aside.ok()) skip.moved_to = *aside;
      if (aside.ok() && file.session.empty() && IsSnapshotName(file.path)) other_snapshots.pop_back();
    }
    if (skip.moved_to.empty() && !file.session.empty()) {
      unusable[file.session] = std::string(point.status().message());
      if (pins.count(file.session) > 0) other_pins.insert(file.session);
    }
    skipped.push_back(std::move(skip));
  }
  return skipped;
}

absl::Status StoreRecords::WriteFile(StoreLock& lock, const StoreRecordPtr& record) {
  const std::shared_ptr<const Session> session = record->memory;
  const StorePoint point = record->point;
  const std::string path = record->name.empty()
                               ? folder->SnapshotPath(point.position, HashInName(point, model.identity))
                               : folder->SessionPath(record->name);
  const int64_t session_bytes = session->ByteSize();
  const int64_t expected_bytes = session_bytes + file_overhead_;
  RETURN_IF_ERROR(MakeDiskRoom(expected_bytes, record->name.empty(), path));
  stats.disk_bytes += expected_bytes;
  record->busy = true;
  lock.unlock();
  absl::Status written = WriteSnapshot(path, *session, model.identity);
  const int64_t bytes = written.ok() ? FileBytes(path) : 0;
  lock.lock();
  record->busy = false;
  idle.notify_all();
  stats.disk_bytes -= expected_bytes;
  if (!written.ok()) {
    ++stats.disk_errors;
    return written;
  }
  file_overhead_ = std::max(file_overhead_, bytes - session_bytes);
  stats.disk_bytes += bytes - record->file_bytes;
  const bool is_new = record->path.empty();
  record->path = path;
  record->file_bytes = bytes;
  record->in_file = point;
  return is_new && record->pinned ? WritePins() : absl::OkStatus();
}

absl::Status StoreRecords::WriteSnapshots(StoreLock& lock) {
  std::vector<StoreRecordPtr> kept;
  for (const auto& [id, record] : records) {
    if (record->name.empty() && record->kept) kept.push_back(record);
  }
  absl::Status written = std::exchange(lost_snapshot_, absl::OkStatus());
  for (const StoreRecordPtr& record : kept) {
    while (record->busy) idle.wait(lock);
    if (record->gone || record->memory == nullptr || record->FileIsCurrent()) continue;
    written.Update(WriteFile(lock, record));
  }
  // What an earlier process left may be more.
  written.Update(MakeDiskRoom(0, /*is_snapshot=*/true, "snapshots"));
  return written;
}

absl::Status StoreRecords::WritePins() {
  if (!folder.has_value()) return absl::OkStatus();
  std::set<std::string> pins = other_pins;
  for (const auto& [name, record] : names) {
    if (record->pinned && !record->path.empty()) pins.insert(name);
  }
  absl::Status written = folder->WritePins(pins);
  if (!written.ok()) ++stats.disk_errors;
  return written;
}

absl::Status StoreRecords::ReadFile(StoreLock& lock, const StoreRecordPtr& record) {
  const std::string path = record->path;
  record->busy = true;
  lock.unlock();
  std::unique_lock<std::mutex> pool(pool_mutex_, std::try_to_lock);
  absl::StatusOr<Session> session =
      ReadSnapshot(path, model.identity, model.new_sequence(), pool.owns_lock() ? options.pool : nullptr);
  if (pool.owns_lock()) pool.unlock();
  absl::Status read = session.status();
  std::shared_ptr<const Session> restored;
  StorePoint found;
  if (read.ok()) {
    restored = std::make_shared<const Session>(*std::move(session));
    found = {restored->state.position(), HashTokens(restored->tokens), 0};
  }
  lock.lock();
  record->busy = false;
  idle.notify_all();
  if (!read.ok()) {
    ++stats.disk_errors;
    return read;
  }
  if (found.position != record->in_file.position || found.hash != record->in_file.hash) {
    ++stats.disk_errors;
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": was replaced by another file while the store had it: ", found.position,
                     " tokens, expected the ", record->in_file.position, " that were there"));
  }
  ++stats.restored;
  SetMemory(*record, std::move(restored));
  return absl::OkStatus();
}

StoreRecordPtr StoreRecords::OldestSnapshotFile() const {
  StoreRecordPtr oldest;
  for (const auto& [id, record] : records) {
    if (!record->name.empty() || record->path.empty() || record->busy) continue;
    if (oldest == nullptr || record->use < oldest->use) oldest = record;
  }
  return oldest;
}

absl::Status StoreRecords::GiveUpFile(const StoreRecordPtr& record) {
  if (record->memory == nullptr) {
    RETURN_IF_ERROR(RemoveRecord(record, /*forget=*/true));
    ++stats.dropped;
    return absl::OkStatus();
  }
  absl::Status removed = RemoveFile(record->path);
  if (!removed.ok()) {
    ++stats.disk_errors;
    return removed;
  }
  ForgetFile(*record);
  return absl::OkStatus();
}

int64_t StoreRecords::SnapshotFileBytes() const {
  int64_t bytes = 0;
  for (const auto& [id, record] : records) {
    if (record->name.empty()) bytes += record->file_bytes;
  }
  for (const StoreFolder::File& file : other_snapshots) bytes += file.bytes;
  return bytes;
}

absl::Status StoreRecords::MakeDiskRoom(int64_t bytes, bool is_snapshot, const std::string& what) {
  const auto refuse = [&](absl::string_view budget, int64_t limit, int64_t others) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot write ", what, ": ", bytes, " bytes do not fit into the ",
                                                     budget, " budget of ", limit, " bytes beside ", others,
                                                     " of other files"));
  };
  while (stats.disk_bytes + bytes > options.disk_budget) {
    const StoreRecordPtr oldest = OldestSnapshotFile();
    if (oldest == nullptr) return refuse("disk", options.disk_budget, stats.disk_bytes);
    RETURN_IF_ERROR(GiveUpFile(oldest));
  }
  if (!is_snapshot) return absl::OkStatus();
  // Nothing has to go for one that will never fit.
  if (bytes > options.snapshot_budget) return refuse("snapshot", options.snapshot_budget, 0);
  for (int64_t used = SnapshotFileBytes(); used + bytes > options.snapshot_budget; used = SnapshotFileBytes()) {
    const StoreRecordPtr oldest = OldestSnapshotFile();
    if (!other_snapshots.empty() && (oldest == nullptr || other_snapshots.front().written <= oldest->last_use)) {
      RETURN_IF_ERROR(RemoveFile(other_snapshots.front().path));
      other_snapshots.pop_front();
      ++stats.dropped;
      continue;
    }
    if (oldest == nullptr) return refuse("snapshot", options.snapshot_budget, used);
    RETURN_IF_ERROR(GiveUpFile(oldest));
  }
  return absl::OkStatus();
}

void StoreRecords::SetAside(const StoreRecordPtr& record, const absl::Status& why) {
  if (record->gone || record->busy) return;
  // What is not damaged is not ours to move. Should it not move, it stays, as at Open.
  if (absl::IsInvalidArgument(why)) static_cast<void>(MoveAside(record->path).status());
  ForgetFile(*record);
  static_cast<void>(RemoveRecord(record, /*forget=*/false));
}

}  // namespace kvm
