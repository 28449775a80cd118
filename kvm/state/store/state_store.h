#ifndef KVM_STATE_STORE_STATE_STORE_H_
#define KVM_STATE_STORE_STATE_STORE_H_

// Many sessions of one model under a budget of memory: the least recently used move to files and come back when they
// are asked for, and a prompt that begins like an earlier one starts from what is stored of that (docs/state.md).
//
//   ASSIGN_OR_RETURN(std::unique_ptr<StateStore> store, StateStore::Open(options, model));
//   ASSIGN_OR_RETURN(SessionLease lease, store->Create("talk", prompt, /*max_new_tokens=*/200));
//   Session& session = lease.session();               // holds the longest beginning of the prompt that is stored
//   ... feed prompt[session.tokens.size()..], with RETURN_IF_ERROR(lease.Offer()) at multiples of the chunk ...
//   RETURN_IF_ERROR(lease.Release());                 // or let the lease go out of scope
//
// A session goes to the same bits whether it started from a stored beginning or not, and whether it was in a file
// meanwhile or not.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/state/model_identity.h"
#include "kvm/state/snapshot/session.h"
#include "kvm/state/store/retention.h"

namespace kvm {

struct StateStoreOptions {
  std::string folder;         // for snapshot files, made if it is not there; empty: memory only
  int64_t memory_budget = 0;  // bytes of all sessions and snapshots in memory (Session::ByteSize) and of leases; > 0
  int64_t disk_budget = std::numeric_limits<int64_t>::max();  // bytes of our files in the folder
  // Bytes of all snapshot files in the folder, those of other models included: the least recently used go. Sessions do
  // not count, and stay.
  int64_t snapshot_budget = std::numeric_limits<int64_t>::max();
  Retention retention;
  // Files are read on its threads, by one caller at a time; others that come meanwhile read on their own. Nobody else
  // may use it while the store is called. Must outlive the store. Null: none.
  ThreadPool* pool = nullptr;
};

// What the store has to know of a model. The functions are called from any thread that uses the store.
struct StoreModel {
  ModelIdentity identity;
  std::function<SequenceState()> new_sequence;      // LanguageModel::NewSequence
  std::function<int64_t(int64_t tokens)> bytes_at;  // of a state: SequenceStateSize; may be an upper bound
  int64_t vocab_size = 0;                           // logits are this many floats
};

// What became of the sequences asked for, since Open. A prompt of Create is a hit or a miss.
struct StateStoreStats {
  int64_t hits = 0;        // something stored was a beginning of the prompt
  int64_t exact_hits = 0;  // of these: it was the whole prompt, so that even its logits were there
  // Misses, by reason.
  int64_t nothing_stored = 0;
  int64_t shorter_than_chunk = 0;   // the prompt, and no end of a session was a beginning of it
  int64_t evicted = 0;              // a beginning of it was stored, but had to go
  int64_t unreadable = 0;           // a beginning of it is stored in a file that cannot be read
  int64_t first_tokens_differ = 0;  // what is stored begins otherwise

  int64_t tokens_reused = 0;    // of prompts: they need not be fed
  int64_t tokens_replayed = 0;  // that Rewind asked for

  int64_t moved_to_disk = 0;  // from memory, for want of room
  int64_t dropped = 0;        // snapshots given up for want of room, in memory or on disk; never a named session
  int64_t restored = 0;       // files read back
  int64_t refused = 0;        // requests that did not fit
  int64_t disk_errors = 0;    // files that could not be written, read or removed

  // Now.
  int64_t sessions = 0;      // named
  int64_t snapshots = 0;     // without a name: beginnings to start from
  int64_t memory_bytes = 0;  // of sessions and snapshots
  int64_t leased_bytes = 0;  // set aside for leases
  int64_t disk_bytes = 0;
};

struct SessionInfo {
  std::string name;
  int64_t position = 0;  // when leased: before the lease
  int64_t bytes = 0;     // in memory, else of its file; when leased: set aside for it
  bool in_memory = false;
  bool on_disk = false;  // as it is now: an older version in the folder does not count
  bool pinned = false;
  bool leased = false;
  absl::Time last_use;
};

// A file in the folder that the store does not use.
struct SkippedFile {
  std::string path;
  absl::Status why;      // FailedPrecondition: of another model; InvalidArgument: damaged; Unimplemented: newer;
                         // others: cannot be read
  std::string moved_to;  // where a damaged one is now; empty when it stays where it was
};

class StoreRecords;  // internal
struct StoreRecord;

// Exclusive use of one session. Thread-compatible; must not outlive its store.
class SessionLease {
 public:
  SessionLease(SessionLease&& other) noexcept;
  SessionLease& operator=(SessionLease&& other) noexcept;
  ~SessionLease();  // Release()

  // May be extended; to go back there is Rewind().
  Session& session() { return session_; }

  // Keeps a snapshot of the session as it is now for prompts that begin with its tokens and for Rewind(), as Retention
  // says. Cheap: at multiples of the chunk while a prompt is fed, and at the prompt's end. Errors are those of moving
  // others to disk to make room; the session is as before.
  absl::Status Offer();

  // The same, but the snapshot is kept for good wherever it stands, as long as there is room: for ends of prompts,
  // where the next turn begins and the same prompt is had whole. Errors as Offer().
  absl::Status Keep();

  // Goes back to the nearest snapshot at or before `position` (a state cannot be rewound) and returns the session's
  // tokens from there up to `position`, which are to be fed again; none stored: the session is empty, and all of them.
  // OutOfRange for a position that is not within the session; FailedPrecondition naming the nearest snapshot when more
  // than `max_replay` tokens would have to be fed. After an error the session is as it was.
  absl::StatusOr<std::vector<int32_t>> Rewind(int64_t position,
                                              int64_t max_replay = std::numeric_limits<int64_t>::max());

  // Gives the session back; session() may not be used afterwards. It is kept whatever the status, which is that of
  // moving others to disk to make room. Only one whose tokens are not those of its state, as after an error half way,
  // cannot be kept: InvalidArgument, and the name stands for the version in its file, or goes if there is none.
  absl::Status Release();

 private:
  friend class StateStore;
  SessionLease(StoreRecords* store, std::shared_ptr<StoreRecord> record, Session session, int64_t reserved);

  absl::Status AddSnapshot(bool for_good);

  StoreRecords* store_ = nullptr;  // null: released
  std::shared_ptr<StoreRecord> record_;
  Session session_;
  int64_t reserved_ = 0;  // bytes
};

// Thread-safe. Files are read and written while other threads go on.
class StateStore {
 public:
  // Locks the folder, removes what killed processes left in it, and takes in the sessions and snapshots of this model.
  // FailedPrecondition naming the process when another one has the folder; InvalidArgument naming the option that
  // cannot be; whatever making or reading the folder gives. Files that cannot be used are no error: see
  // skipped_files().
  static absl::StatusOr<std::unique_ptr<StateStore>> Open(StateStoreOptions options, StoreModel model);
  ~StateStore();  // does not save: see Save and SaveSnapshots

  // A new session that starts from the longest beginning of `prompt` that is stored; up to `max_new_tokens` are to
  // follow the prompt. A session without a name, "", is for this lease alone; its end is kept as a snapshot.
  // InvalidArgument for a bad name (CheckSessionName); AlreadyExists; ResourceExhausted, before any work and naming the
  // numbers, when prompt and new tokens will not fit into the memory budget beside what is pinned and leased; the
  // disk's error when others cannot be moved there to make room.
  absl::StatusOr<SessionLease> Create(absl::string_view name, absl::Span<const int32_t> prompt, int64_t max_new_tokens);

  // An existing session, to be extended by up to `max_new_tokens`. NotFound; FailedPrecondition while it is leased;
  // errors of room as Create; those of ReadSnapshot.
  absl::StatusOr<SessionLease> Lease(absl::string_view name, int64_t max_new_tokens);

  // A session `to` that is at first the same as `from`; they share memory until one is extended. Errors as Create and
  // Lease.
  absl::Status Fork(absl::string_view from, absl::string_view to);

  // A pinned session stays in memory. Pin brings it back if it is not there, with the errors of Load. A pinned session
  // that has a file is still pinned when the folder is opened the next time, and then stays in memory from its first
  // use on. Errors of writing that down are those of AtomicFile; then the pin is as it was.
  absl::Status Pin(absl::string_view name);
  absl::Status Unpin(absl::string_view name);

  // Writes a session to its file; it stays in memory. Nothing to do when the file is as new. NotFound;
  // FailedPrecondition while it is leased and in a store without folder; ResourceExhausted beyond the disk budget; the
  // errors of WriteSnapshot, after which the file is as it was. A name whose file cannot be used is FailedPrecondition
  // here and for all that take the name of a session.
  absl::Status Save(absl::string_view name);

  // Writes the snapshots that are kept for good to their files, as before the store goes; they stay in memory.
  // FailedPrecondition in a store without folder; other errors as Save, and then those that cannot be are not written.
  // Also says why, since the last call, one that had to leave memory could not be.
  absl::Status SaveSnapshots();

  // Brings a session back to memory. Errors as Lease.
  absl::Status Load(absl::string_view name);

  // Deletes a session and its file. NotFound; FailedPrecondition while it is leased; the error of removing the file,
  // and then the session stays.
  absl::Status Drop(absl::string_view name);

  // By name.
  std::vector<SessionInfo> List() const;
  StateStoreStats Stats() const;

  // What Open found in the folder and cannot use.
  const std::vector<SkippedFile>& skipped_files() const { return skipped_files_; }

 private:
  explicit StateStore(std::unique_ptr<StoreRecords> records);

  std::unique_ptr<StoreRecords> records_;
  std::vector<SkippedFile> skipped_files_;
};

}  // namespace kvm

#endif  // KVM_STATE_STORE_STATE_STORE_H_
