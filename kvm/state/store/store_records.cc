#include "kvm/state/store/store_records.h"

#include <algorithm>
#include <cassert>

namespace kvm {

StoreRecordPtr StoreRecords::FindName(const std::string& name) const {
  const auto found = names.find(name);
  return found == names.end() ? nullptr : found->second;
}

StoreRecordPtr StoreRecords::AddRecord(std::string name, StorePoint point) {
  auto record = std::make_shared<StoreRecord>();
  record->id = ++last_id_;
  record->name = std::move(name);
  record->point = point;
  records[record->id] = record;
  if (!record->name.empty()) names[record->name] = record;
  Touch(*record);
  return record;
}

absl::Status StoreRecords::RemoveRecord(const StoreRecordPtr& record, bool forget) {
  assert(!record->busy);
  if (!record->path.empty()) {
    absl::Status removed = RemoveFile(record->path);
    if (!removed.ok()) {
      ++stats.disk_errors;
      return removed;
    }
    ForgetFile(*record);
  }
  RemoveFromIndex(*record, forget);
  SetMemory(*record, nullptr);
  if (!record->name.empty()) names.erase(record->name);
  records.erase(record->id);
  record->gone = true;
  // A pin without a session means nothing: should it stay in the file, the next Open forgets it.
  if (record->pinned) static_cast<void>(WritePins());
  return absl::OkStatus();
}

void StoreRecords::ForgetFile(StoreRecord& record) {
  stats.disk_bytes -= record.file_bytes;
  record.path.clear();
  record.file_bytes = 0;
}

void StoreRecords::AddToIndex(StoreRecord& record) {
  // Every sequence begins with nothing.
  if (record.indexed || record.point.position == 0) return;
  index.Add(record.point.position, record.point.hash, record.id);
  record.indexed = true;
}

void StoreRecords::RemoveFromIndex(StoreRecord& record, bool forget) {
  if (!record.indexed) return;
  record.indexed = false;
  if (forget) {
    index.Forget(record.point.position, record.point.hash, record.id);
  } else {
    index.Remove(record.point.position, record.point.hash, record.id);
  }
}

void StoreRecords::SetMemory(StoreRecord& record, std::shared_ptr<const Session> session) {
  if (session != nullptr) {
    Use& use = in_memory_[session.get()];
    if (use.records++ == 0) {
      use.bytes = session->ByteSize();
      stats.memory_bytes += use.bytes;
    }
  }
  if (record.memory != nullptr) {
    const auto use = in_memory_.find(record.memory.get());
    if (--use->second.records == 0) {
      stats.memory_bytes -= use->second.bytes;
      in_memory_.erase(use);
    }
  }
  record.memory = std::move(session);
}

void StoreRecords::Touch(StoreRecord& record) {
  record.use = ++last_use_;
  record.last_use = absl::Now();
}

void StoreRecords::AddSnapshot(std::shared_ptr<const Session> session, uint64_t hash, bool for_good,
                               StoreRecord& owner) {
  const int64_t position = session->state.position();
  if (position == 0) return;
  for (uint64_t id : index.At(position, hash)) {
    StoreRecord& record = *records.at(id);
    if (!record.name.empty()) continue;
    // Should the tokens differ in spite of the hash, this one is not found later, and no harm is done.
    Touch(record);
    record.kept = record.kept || for_good;
    if (record.memory == nullptr || record.memory->logits.empty()) SetMemory(record, std::move(session));
    return;
  }
  const StoreRecordPtr record = AddRecord("", {position, hash, 0});
  record->kept = for_good || IsKept(options.retention, position);
  SetMemory(*record, std::move(session));
  AddToIndex(*record);
  if (record->kept) return;
  owner.recent.push_back(record);
  TrimRecent(owner);
}

void StoreRecords::TrimRecent(StoreRecord& owner) {
  while (static_cast<int64_t>(owner.recent.size()) > options.retention.recent) {
    const StoreRecordPtr oldest = owner.recent.front().lock();
    owner.recent.pop_front();
    if (oldest == nullptr || oldest->gone || oldest->kept) continue;
    // These have no file that could fail to go.
    const absl::Status removed = RemoveRecord(oldest, /*forget=*/true);
    assert(removed.ok());
    static_cast<void>(removed);
  }
}

std::shared_ptr<const Session> StoreRecords::LongestBeginning(StoreLock& lock, absl::Span<const int32_t> tokens,
                                                              absl::Span<const uint64_t> hashes, bool count_miss) {
  const bool anything_stored = !index.empty();
  bool unreadable = false;
  for (uint64_t id : index.Candidates(hashes)) {
    const auto found = records.find(id);
    if (found == records.end()) continue;
    const StoreRecordPtr record = found->second;
    while (record->busy && record->memory == nullptr) idle.wait(lock);
    if (record->memory == nullptr) {
      if (record->gone || record->leased || !record->FileIsCurrent()) continue;
      const absl::Status read = ReadFile(lock, record);
      if (!read.ok()) {
        unreadable = true;
        if (record->name.empty()) SetAside(record, read);
        continue;
      }
    }
    Touch(*record);
    // The next process goes by this.
    if (record->name.empty() && !record->path.empty()) TouchFile(record->path);
    std::shared_ptr<const Session> session = record->memory;
    lock.unlock();
    const bool whole = session->tokens.size() == tokens.size();
    const bool begins = session->tokens.size() <= tokens.size() &&
                        std::equal(session->tokens.begin(), session->tokens.end(), tokens.begin()) &&
                        !(whole && session->logits.empty());
    lock.lock();
    if (begins) return session;
  }
  if (!count_miss) return nullptr;
  if (unreadable) {
    ++stats.unreadable;
  } else if (index.Forgot(hashes)) {
    ++stats.evicted;
  } else if (!anything_stored) {
    ++stats.nothing_stored;
  } else if (static_cast<int64_t>(tokens.size()) < options.retention.chunk) {
    ++stats.shorter_than_chunk;
  } else {
    ++stats.first_tokens_differ;
  }
  return nullptr;
}

}  // namespace kvm
