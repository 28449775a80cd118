#ifndef KVM_STATE_STORE_STORE_RECORDS_H_
#define KVM_STATE_STORE_STORE_RECORDS_H_

// What a StateStore holds, where it is, and how room is made. Internal to state_store.
//
// A record is one point of one sequence: a named session as it was last given back, or a snapshot without a name. What
// a record has in memory never changes: leases work on forks of it, and a record that goes on gets a new Session.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kvm/state/snapshot/session.h"
#include "kvm/state/store/prefix_index.h"
#include "kvm/state/store/state_store.h"
#include "kvm/state/store/store_folder.h"

namespace kvm {

// A point of a sequence, as a record or its file has it.
struct StorePoint {
  int64_t position = 0;
  uint64_t hash = 0;     // HashTokens
  uint64_t version = 0;  // of the session: the same position may be reached again with another sampler
};

inline bool operator==(const StorePoint& a, const StorePoint& b) {
  return a.position == b.position && a.hash == b.hash && a.version == b.version;
}

struct StoreRecord {
  uint64_t id = 0;
  std::string name;  // empty: a snapshot
  StorePoint point;
  std::shared_ptr<const Session> memory;  // null: on disk, or leased
  std::string path;                       // of its file; empty: there is none
  StorePoint in_file;
  int64_t file_bytes = 0;
  bool kept = false;  // a snapshot that Retention keeps for good: worth a file
  bool pinned = false;
  bool leased = false;
  bool indexed = false;
  bool busy = false;  // a thread is at its file: wait for `idle`
  bool gone = false;  // no longer in the store
  uint64_t use = 0;   // a higher one is more recent
  absl::Time last_use;
  int64_t leased_bytes = 0;
  std::deque<std::weak_ptr<StoreRecord>> recent;  // of a session: its snapshots that are not `kept`, newest last

  bool FileIsCurrent() const { return !path.empty() && in_file == point; }
};

using StoreRecordPtr = std::shared_ptr<StoreRecord>;
using StoreLock = std::unique_lock<std::mutex>;

// All members and functions need `mutex` to be held. Functions that take the lock give it up while they are at files
// or compare tokens: what they do not name may have changed when they return.
class StoreRecords {
 public:
  StoreRecords(StateStoreOptions options, StoreModel model, std::optional<StoreFolder> folder)
      : options(std::move(options)), model(std::move(model)), folder(std::move(folder)) {}

  const StateStoreOptions options;
  const StoreModel model;
  const std::optional<StoreFolder> folder;

  std::mutex mutex;
  std::condition_variable idle;  // some record is no longer busy
  std::map<uint64_t, StoreRecordPtr> records;
  std::map<std::string, StoreRecordPtr> names;
  std::map<std::string, std::string> unusable;  // names whose files are not ours to replace, and why
  std::set<std::string> other_pins;             // pinned sessions of other models
  // Snapshot files of other models, least recently used first: they count as ours do, and go as ours do.
  std::deque<StoreFolder::File> other_snapshots;
  PrefixIndex index;
  StateStoreStats stats;

  // Takes in the folder's files (store_files.cc).
  absl::StatusOr<std::vector<SkippedFile>> ReadFolder();

  // --- Records (store_records.cc).
  StoreRecordPtr FindName(const std::string& name) const;  // null: none
  StoreRecordPtr AddRecord(std::string name, StorePoint point);
  // Takes a record out of the store, with what it has in memory, and its file.
  absl::Status RemoveRecord(const StoreRecordPtr& record, bool forget);
  void AddToIndex(StoreRecord& record);
  void RemoveFromIndex(StoreRecord& record, bool forget = false);
  void SetMemory(StoreRecord& record, std::shared_ptr<const Session> session);
  void Touch(StoreRecord& record);
  // Keeps `session` as a snapshot, unless there is one of its tokens already, for good if `for_good` or if Retention
  // says so; a new one that is not is the newest of `owner`, which gives up the oldest.
  void AddSnapshot(std::shared_ptr<const Session> session, uint64_t hash, bool for_good, StoreRecord& owner);
  // The longest stored beginning of `tokens`, or null: then `stats` has the reason if `count_miss`. One that is all of
  // them has logits. PrefixHashes of the tokens are given.
  std::shared_ptr<const Session> LongestBeginning(StoreLock& lock, absl::Span<const int32_t> tokens,
                                                  absl::Span<const uint64_t> hashes, bool count_miss);

  // --- Files (store_files.cc).
  // The record has memory, is not busy, and is not leased.
  absl::Status WriteFile(StoreLock& lock, const StoreRecordPtr& record);
  // Writes all snapshots that are `kept` and have no current file, as far as that is possible. The first error, also of
  // those that had to leave memory since the last call.
  absl::Status WriteSnapshots(StoreLock& lock);
  // Writes which sessions are pinned, of those that have files.
  absl::Status WritePins();
  // The record has no memory but a current file, and is not busy. The caller has made room.
  absl::Status ReadFile(StoreLock& lock, const StoreRecordPtr& record);
  // Makes room for a file, of a snapshot or a session, by removing those of the least recently used snapshots.
  absl::Status MakeDiskRoom(int64_t bytes, bool is_snapshot, const std::string& what);
  // Takes a snapshot whose file cannot be read out of the store, and a damaged file out of the way.
  void SetAside(const StoreRecordPtr& record, const absl::Status& why);

  // --- Memory: who may use it, and who is evicted (store_eviction.cc).
  // What a session of so many tokens takes.
  int64_t SessionBytes(int64_t tokens) const;
  // Sets memory aside for `what`, moving others to disk or giving them up. ResourceExhausted when it cannot be, with
  // nothing done; the disk's error.
  absl::Status Reserve(StoreLock& lock, int64_t bytes, const std::string& what);
  void Unreserve(int64_t bytes) { stats.leased_bytes -= bytes; }
  // Moves the least recently used out of memory until the budget holds.
  absl::Status MakeRoom(StoreLock& lock);
  // Why there is no session of this name: NotFound, or FailedPrecondition for one whose file cannot be used.
  absl::Status NoSession(const std::string& name) const;
  // A session that is not leased and not busy. Errors as NoSession; FailedPrecondition.
  absl::StatusOr<StoreRecordPtr> FreeSession(StoreLock& lock, const std::string& name);
  // The same, brought to memory.
  absl::StatusOr<StoreRecordPtr> SessionInMemory(StoreLock& lock, const std::string& name);

 private:
  // Sessions in memory, which records may share, and how many do.
  struct Use {
    int64_t records = 0;
    int64_t bytes = 0;
  };

  bool CanLeaveMemory(const StoreRecord& record) const;
  int64_t UnmovableBytes() const;
  absl::Status MoveOut(StoreLock& lock, const StoreRecordPtr& record);
  void ForgetFile(StoreRecord& record);
  // The least recently used snapshot with a file that can go; null: none.
  StoreRecordPtr OldestSnapshotFile() const;
  // Removes its file, and the snapshot itself if it is nowhere else.
  absl::Status GiveUpFile(const StoreRecordPtr& record);
  int64_t SnapshotFileBytes() const;
  void TrimRecent(StoreRecord& owner);

  std::mutex pool_mutex_;  // of options.pool; never waited for, and taken without `mutex`
  std::map<const Session*, Use> in_memory_;
  absl::Status lost_snapshot_;  // why one that had to leave memory could not be written
  int64_t file_overhead_ = 0;   // bytes that a file was larger than its session at most: headers vary little
  uint64_t last_id_ = 0;
  uint64_t last_use_ = 0;
};

}  // namespace kvm

#endif  // KVM_STATE_STORE_STORE_RECORDS_H_
