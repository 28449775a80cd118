#include "kvm/state/store/state_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/state/store/store_folder.h"
#include "kvm/state/store/store_records.h"

namespace kvm {
namespace {

// Far more than anybody waits for, yet predicted bytes cannot overflow.
constexpr int64_t kMostNewTokens = int64_t{1} << 31;

absl::Status CheckNewTokens(int64_t max_new_tokens) {
  if (max_new_tokens >= 0 && max_new_tokens <= kMostNewTokens) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("max_new_tokens is ", max_new_tokens, ", expected 0 to ", kMostNewTokens));
}

std::string Describe(absl::string_view name, int64_t tokens) {
  return absl::StrCat(name.empty() ? "a session without a name" : absl::StrCat("session \"", name, "\""), " of ",
                      tokens, " tokens");
}

// Whether a new session may have this name. The lock is held.
absl::Status CheckFree(const StoreRecords& records, const std::string& name) {
  RETURN_IF_ERROR(CheckSessionName(name));
  if (records.FindName(name) != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("there is a session \"", name, "\" already"));
  }
  const auto unusable = records.unusable.find(name);
  if (unusable == records.unusable.end()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("session \"", name, "\": its file is there and is left alone: ", unusable->second));
}

SessionInfo Describe(const StoreRecord& record) {
  SessionInfo info;
  info.name = record.name;
  info.position = record.point.position;
  info.in_memory = record.memory != nullptr || record.leased;
  info.on_disk = record.FileIsCurrent() && !record.leased;
  info.bytes = record.leased ? record.leased_bytes : record.memory ? record.memory->ByteSize() : record.file_bytes;
  info.pinned = record.pinned;
  info.leased = record.leased;
  info.last_use = record.last_use;
  return info;
}

}  // namespace

StateStore::StateStore(std::unique_ptr<StoreRecords> records) : records_(std::move(records)) {}

StateStore::~StateStore() = default;

absl::StatusOr<std::unique_ptr<StateStore>> StateStore::Open(StateStoreOptions options, StoreModel model) {
  if (options.memory_budget <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("memory_budget is ", options.memory_budget, ", expected > 0"));
  }
  if (options.disk_budget < 0) {
    return absl::InvalidArgumentError(absl::StrCat("disk_budget is ", options.disk_budget, ", expected >= 0"));
  }
  if (options.snapshot_budget < 0) {
    return absl::InvalidArgumentError(absl::StrCat("snapshot_budget is ", options.snapshot_budget, ", expected >= 0"));
  }
  RETURN_IF_ERROR(CheckRetention(options.retention));
  std::optional<StoreFolder> folder;
  if (!options.folder.empty()) {
    ASSIGN_OR_RETURN(folder, StoreFolder::Open(options.folder));
  }
  const bool has_folder = folder.has_value();
  std::unique_ptr<StateStore> store(
      new StateStore(std::make_unique<StoreRecords>(std::move(options), std::move(model), std::move(folder))));
  if (has_folder) {
    const StoreLock lock(store->records_->mutex);
    ASSIGN_OR_RETURN(store->skipped_files_, store->records_->ReadFolder());
  }
  return store;
}

absl::StatusOr<SessionLease> StateStore::Create(absl::string_view name, absl::Span<const int32_t> prompt,
                                                int64_t max_new_tokens) {
  RETURN_IF_ERROR(CheckNewTokens(max_new_tokens));
  const std::vector<uint64_t> hashes = PrefixHashes(prompt);
  const int64_t tokens = static_cast<int64_t>(prompt.size()) + max_new_tokens;
  const int64_t bytes = records_->SessionBytes(tokens);
  StoreLock lock(records_->mutex);
  StoreRecordPtr record;
  if (name.empty()) {
    record = std::make_shared<StoreRecord>();
  } else {
    RETURN_IF_ERROR(CheckFree(*records_, std::string(name)));
    record = records_->AddRecord(std::string(name), {});  // the name is taken from here on
  }
  record->leased = true;
  record->leased_bytes = bytes;
  const absl::Status reserved = records_->Reserve(lock, bytes, Describe(name, tokens));
  if (!reserved.ok()) {
    if (!name.empty()) RETURN_IF_ERROR(records_->RemoveRecord(record, /*forget=*/false));
    return reserved;
  }
  const std::shared_ptr<const Session> found =
      prompt.empty() ? nullptr : records_->LongestBeginning(lock, prompt, hashes, /*count_miss=*/true);
  if (found != nullptr) {
    ++records_->stats.hits;
    if (found->tokens.size() == prompt.size()) ++records_->stats.exact_hits;
    records_->stats.tokens_reused += static_cast<int64_t>(found->tokens.size());
    // What was read back from disk takes room, but not for long if there is none: its file is there.
    static_cast<void>(records_->MakeRoom(lock));
  }
  lock.unlock();
  Session session;
  if (found != nullptr) {
    session = found->Fork();
    session.sampler.reset();  // another generation's
  } else {
    session.state = records_->model.new_sequence();
  }
  return SessionLease(records_.get(), std::move(record), std::move(session), bytes);
}

absl::StatusOr<SessionLease> StateStore::Lease(absl::string_view name, int64_t max_new_tokens) {
  RETURN_IF_ERROR(CheckNewTokens(max_new_tokens));
  StoreLock lock(records_->mutex);
  ASSIGN_OR_RETURN(const StoreRecordPtr record, records_->FreeSession(lock, std::string(name)));
  const int64_t tokens = record->point.position + max_new_tokens;
  const int64_t bytes = records_->SessionBytes(tokens);
  // What it has in memory is not in the way of its own lease.
  std::shared_ptr<const Session> before = record->memory;
  record->leased = true;
  record->leased_bytes = bytes;
  records_->RemoveFromIndex(*record);
  records_->SetMemory(*record, nullptr);
  absl::Status status = records_->Reserve(lock, bytes, Describe(name, tokens));
  if (status.ok() && before == nullptr) {
    status = records_->ReadFile(lock, record);
    before = record->memory;
    records_->SetMemory(*record, nullptr);
    if (!status.ok()) records_->Unreserve(bytes);
  }
  if (!status.ok()) {
    record->leased = false;
    record->leased_bytes = 0;
    records_->SetMemory(*record, std::move(before));
    records_->AddToIndex(*record);
    return status;
  }
  records_->Touch(*record);
  records_->AddSnapshot(before, record->point.hash, /*for_good=*/false, *record);
  static_cast<void>(records_->MakeRoom(lock));  // the snapshot itself may go, if nothing else can
  lock.unlock();
  return SessionLease(records_.get(), record, before->Fork(), bytes);
}

absl::Status StateStore::Fork(absl::string_view from, absl::string_view to) {
  StoreLock lock(records_->mutex);
  RETURN_IF_ERROR(CheckFree(*records_, std::string(to)));
  ASSIGN_OR_RETURN(const StoreRecordPtr source, records_->SessionInMemory(lock, std::string(from)));
  RETURN_IF_ERROR(CheckFree(*records_, std::string(to)));  // bringing it to memory may have taken a while
  const StoreRecordPtr copy = records_->AddRecord(std::string(to), source->point);
  records_->SetMemory(*copy, source->memory);
  records_->AddToIndex(*copy);
  return absl::OkStatus();
}

absl::Status StateStore::Pin(absl::string_view name) {
  StoreLock lock(records_->mutex);
  const StoreRecordPtr record = records_->FindName(std::string(name));
  if (record == nullptr) return records_->NoSession(std::string(name));
  const bool was_pinned = std::exchange(record->pinned, true);
  absl::Status pinned;
  if (!record->leased) pinned = records_->SessionInMemory(lock, std::string(name)).status();
  // Who leased it meanwhile has it in memory.
  if (record->leased) pinned = absl::OkStatus();
  if (pinned.ok() && !was_pinned) pinned = records_->WritePins();
  if (!pinned.ok()) record->pinned = was_pinned;
  return pinned;
}

absl::Status StateStore::Unpin(absl::string_view name) {
  const StoreLock lock(records_->mutex);
  const StoreRecordPtr record = records_->FindName(std::string(name));
  if (record == nullptr) return records_->NoSession(std::string(name));
  if (!std::exchange(record->pinned, false)) return absl::OkStatus();
  absl::Status written = records_->WritePins();
  if (!written.ok()) record->pinned = true;
  return written;
}

absl::Status StateStore::Save(absl::string_view name) {
  StoreLock lock(records_->mutex);
  ASSIGN_OR_RETURN(const StoreRecordPtr record, records_->FreeSession(lock, std::string(name)));
  if (!records_->folder.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("session \"", name, "\" cannot be saved: the store has no folder"));
  }
  return record->FileIsCurrent() ? absl::OkStatus() : records_->WriteFile(lock, record);
}

absl::Status StateStore::SaveSnapshots() {
  StoreLock lock(records_->mutex);
  if (!records_->folder.has_value()) {
    return absl::FailedPreconditionError("snapshots cannot be saved: the store has no folder");
  }
  return records_->WriteSnapshots(lock);
}

absl::Status StateStore::Load(absl::string_view name) {
  StoreLock lock(records_->mutex);
  ASSIGN_OR_RETURN(const StoreRecordPtr record, records_->SessionInMemory(lock, std::string(name)));
  records_->Touch(*record);
  return absl::OkStatus();
}

absl::Status StateStore::Drop(absl::string_view name) {
  StoreLock lock(records_->mutex);
  ASSIGN_OR_RETURN(const StoreRecordPtr record, records_->FreeSession(lock, std::string(name)));
  return records_->RemoveRecord(record, /*forget=*/false);
}

std::vector<SessionInfo> StateStore::List() const {
  const StoreLock lock(records_->mutex);
  std::vector<SessionInfo> sessions;
  for (const auto& [name, record] : records_->names) sessions.push_back(Describe(*record));
  return sessions;
}

StateStoreStats StateStore::Stats() const {
  const StoreLock lock(records_->mutex);
  StateStoreStats stats = records_->stats;
  stats.sessions = static_cast<int64_t>(records_->names.size());
  stats.snapshots = static_cast<int64_t>(records_->records.size()) - stats.sessions;
  return stats;
}

}  // namespace kvm
