// The memory budget of a StateStore: how much a session may take, and which ones are evicted for it.

#include <cassert>
#include <set>

#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/state/store/store_records.h"

namespace kvm {

int64_t StoreRecords::SessionBytes(int64_t tokens) const {
  return model.bytes_at(tokens) + tokens * static_cast<int64_t>(sizeof(int32_t)) +
         model.vocab_size * static_cast<int64_t>(sizeof(float));
}

bool StoreRecords::CanLeaveMemory(const StoreRecord& record) const {
  return record.memory != nullptr && !record.pinned && (folder.has_value() || record.name.empty());
}

int64_t StoreRecords::UnmovableBytes() const {
  std::set<const Session*> counted;
  int64_t bytes = stats.leased_bytes;
  for (const auto& [id, record] : records) {
    if (record->memory == nullptr || CanLeaveMemory(*record)) continue;
    if (counted.insert(record->memory.get()).second) bytes += in_memory_.at(record->memory.get()).bytes;
  }
  return bytes;
}

absl::Status StoreRecords::Reserve(StoreLock& lock, int64_t bytes, const std::string& what) {
  const int64_t unmovable = UnmovableBytes();
  if (bytes > options.memory_budget - unmovable) {
    ++stats.refused;
    return absl::ResourceExhaustedError(absl::StrCat(
        what, ": ", bytes, " bytes do not fit into the memory budget of ", options.memory_budget, " bytes beside ",
        unmovable, " that are ", folder.has_value() ? "pinned or leased" : "leased or held by sessions (no folder)"));
  }
  // Before the lock is given up, so that no other thread counts on the same room.
  stats.leased_bytes += bytes;
  absl::Status made = MakeRoom(lock);
  if (made.ok()) return made;
  Unreserve(bytes);
  ++stats.refused;
  return absl::Status(made.code(), absl::StrCat(what, ": cannot make room for ", bytes, " bytes: ", made.message()));
}

absl::Status StoreRecords::MakeRoom(StoreLock& lock) {
  std::set<uint64_t> stuck;
  absl::Status trouble;
  while (stats.memory_bytes + stats.leased_bytes > options.memory_budget) {
    StoreRecordPtr oldest;
    bool any_busy = false;
    for (const auto& [id, record] : records) {
      if (!CanLeaveMemory(*record) || stuck.count(id) > 0) continue;
      if (record->busy) {
        any_busy = true;
      } else if (oldest == nullptr || record->use < oldest->use) {
        oldest = record;
      }
    }
    if (oldest == nullptr && any_busy) {
      idle.wait(lock);
    } else if (oldest == nullptr) {
      if (!trouble.ok()) return trouble;
      return absl::ResourceExhaustedError(absl::StrCat(
          "the memory budget of ", options.memory_budget, " bytes is exceeded: ", stats.leased_bytes, " are leased, ",
          stats.memory_bytes, " are in memory, and of these nothing more can be moved out"));
    } else {
      const absl::Status moved = MoveOut(lock, oldest);
      if (!moved.ok()) {
        stuck.insert(oldest->id);
        if (trouble.ok()) trouble = moved;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status StoreRecords::MoveOut(StoreLock& lock, const StoreRecordPtr& record) {
  if (!record->FileIsCurrent()) {
    const bool worth_a_file = !record->name.empty() || record->kept;
    const absl::Status written = worth_a_file && folder.has_value()
                                     ? WriteFile(lock, record)
                                     : absl::UnavailableError("a snapshot that is kept in memory only");
    if (!written.ok()) {
      if (!record->name.empty()) {
        return absl::Status(written.code(),
                            absl::StrCat("session \"", record->name, "\" stays in memory: ", written.message()));
      }
      if (worth_a_file && folder.has_value()) lost_snapshot_.Update(written);
      RETURN_IF_ERROR(RemoveRecord(record, /*forget=*/true));
      ++stats.dropped;
      return absl::OkStatus();
    }
    // Meanwhile it may have been leased or pinned.
    if (!CanLeaveMemory(*record) || record->busy || !record->FileIsCurrent()) return absl::OkStatus();
  }
  SetMemory(*record, nullptr);
  ++stats.moved_to_disk;
  return absl::OkStatus();
}

absl::Status StoreRecords::NoSession(const std::string& name) const {
  const auto found = unusable.find(name);
  if (found == unusable.end()) return absl::NotFoundError(absl::StrCat("no session \"", name, "\""));
  return absl::FailedPreconditionError(
      absl::StrCat("session \"", name, "\": its file is there and is left alone: ", found->second));
}

absl::StatusOr<StoreRecordPtr> StoreRecords::FreeSession(StoreLock& lock, const std::string& name) {
  for (;;) {
    const StoreRecordPtr record = FindName(name);
    if (record == nullptr) return NoSession(name);
    if (record->leased) return absl::FailedPreconditionError(absl::StrCat("session \"", name, "\" is leased"));
    if (!record->busy) return record;
    idle.wait(lock);
  }
}

absl::StatusOr<StoreRecordPtr> StoreRecords::SessionInMemory(StoreLock& lock, const std::string& name) {
  for (;;) {
    ASSIGN_OR_RETURN(const StoreRecordPtr record, FreeSession(lock, name));
    if (record->memory != nullptr) return record;
    const int64_t bytes = SessionBytes(record->point.position);
    RETURN_IF_ERROR(Reserve(lock, bytes, absl::StrCat("session \"", name, "\"")));
    absl::Status read;
    // Making room may have taken a while.
    if (!record->gone && !record->leased && !record->busy && record->memory == nullptr) read = ReadFile(lock, record);
    Unreserve(bytes);
    RETURN_IF_ERROR(read);
  }
}

}  // namespace kvm
