// The files of a StateStore.

#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kvm/io/content_hash.h"
#include "kvm/state/snapshot.h"
#include "kvm/state/store_records.h"
#include "kvm/status_macros.h"

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
  for (const std::string& path : contents.odd) {
    skipped.push_back({path, absl::InvalidArgumentError(absl::StrCat(path, ": not the name of a session")), ""});
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
      stats.disk_bytes += file.bytes;
      AddToIndex(*record);
      continue;
    }
    SkippedFile skip = {file.path, point.status(), ""};
    if (absl::IsInvalidArgument(point.status())) {
      const absl::StatusOr<std::string> aside = MoveAside(file.path);
      if (aside.ok()) skip.moved_to = *aside;
    }
    if (skip.moved_to.empty() && !file.session.empty()) unusable[file.session] = std::string(point.status().message());
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
  RETURN_IF_ERROR(MakeDiskRoom(expected_bytes, path));
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
  record->path = path;
  record->file_bytes = bytes;
  record->in_file = point;
  return absl::OkStatus();
}

absl::Status StoreRecords::WriteSnapshots(StoreLock& lock) {
  std::vector<StoreRecordPtr> kept;
  for (const auto& [id, record] : records) {
    if (record->name.empty() && record->kept) kept.push_back(record);
  }
  for (const StoreRecordPtr& record : kept) {
    while (record->busy) idle.wait(lock);
    if (record->gone || record->memory == nullptr || record->FileIsCurrent()) continue;
    RETURN_IF_ERROR(WriteFile(lock, record));
  }
  return absl::OkStatus();
}

absl::Status StoreRecords::ReadFile(StoreLock& lock, const StoreRecordPtr& record) {
  const std::string path = record->path;
  record->busy = true;
  lock.unlock();
  absl::StatusOr<Session> session = ReadSnapshot(path, model.identity, model.new_sequence());
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

absl::Status StoreRecords::MakeDiskRoom(int64_t bytes, const std::string& what) {
  while (stats.disk_bytes + bytes > options.disk_budget) {
    StoreRecordPtr oldest;
    for (const auto& [id, record] : records) {
      if (!record->name.empty() || record->path.empty() || record->busy) continue;
      if (oldest == nullptr || record->use < oldest->use) oldest = record;
    }
    if (oldest == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot write ", what, ": ", bytes, " bytes do not fit into the disk budget of ",
                       options.disk_budget, " bytes beside ", stats.disk_bytes, " of other files"));
    }
    if (oldest->memory == nullptr) {
      RETURN_IF_ERROR(RemoveRecord(oldest, /*forget=*/true));
      ++stats.dropped;
    } else {
      absl::Status removed = RemoveFile(oldest->path);
      if (!removed.ok()) {
        ++stats.disk_errors;
        return removed;
      }
      ForgetFile(*oldest);
    }
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
