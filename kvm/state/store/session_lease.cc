#include <utility>

#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/state/store/state_store.h"
#include "kvm/state/store/store_records.h"

namespace kvm {

SessionLease::SessionLease(StoreRecords* store, std::shared_ptr<StoreRecord> record, Session session, int64_t reserved)
    : store_(store), record_(std::move(record)), session_(std::move(session)), reserved_(reserved) {}

SessionLease::SessionLease(SessionLease&& other) noexcept
    : store_(std::exchange(other.store_, nullptr)),
      record_(std::move(other.record_)),
      session_(std::move(other.session_)),
      reserved_(other.reserved_) {}

SessionLease& SessionLease::operator=(SessionLease&& other) noexcept {
  static_cast<void>(Release());
  store_ = std::exchange(other.store_, nullptr);
  record_ = std::move(other.record_);
  session_ = std::move(other.session_);
  reserved_ = other.reserved_;
  return *this;
}

SessionLease::~SessionLease() { static_cast<void>(Release()); }

absl::Status SessionLease::Offer() { return AddSnapshot(/*for_good=*/false); }

absl::Status SessionLease::Keep() { return AddSnapshot(/*for_good=*/true); }

absl::Status SessionLease::AddSnapshot(bool for_good) {
  RETURN_IF_ERROR(session_.state.CheckWhole());
  if (session_.state.position() != static_cast<int64_t>(session_.tokens.size())) {
    return absl::InvalidArgumentError(absl::StrCat("the session has ", session_.tokens.size(),
                                                   " tokens, but its state has taken in ", session_.state.position()));
  }
  auto snapshot = std::make_shared<const Session>(session_.Fork());
  const uint64_t hash = HashTokens(snapshot->tokens);
  StoreLock lock(store_->mutex);
  store_->AddSnapshot(std::move(snapshot), hash, for_good, *record_);
  return store_->MakeRoom(lock);
}

absl::StatusOr<std::vector<int32_t>> SessionLease::Rewind(int64_t position, int64_t max_replay) {
  const int64_t length = static_cast<int64_t>(session_.tokens.size());
  if (position < 0 || position > length) {
    return absl::OutOfRangeError(absl::StrCat("cannot go back to position ", position, ": expected 0 to ", length));
  }
  if (position == length) return std::vector<int32_t>();
  const absl::Span<const int32_t> tokens = absl::MakeConstSpan(session_.tokens).first(position);
  const std::vector<uint64_t> hashes = PrefixHashes(tokens);
  StoreLock lock(store_->mutex);
  const std::shared_ptr<const Session> found = store_->LongestBeginning(lock, tokens, hashes, /*count_miss=*/false);
  static_cast<void>(store_->MakeRoom(lock));  // what was read back has its file
  const int64_t nearest = found == nullptr ? 0 : found->state.position();
  if (position - nearest > max_replay) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot go back to position ", position, ": the nearest snapshot is at ", nearest, ", and of the ",
                     position - nearest, " tokens to feed again at most ", max_replay, " were allowed"));
  }
  store_->stats.tokens_replayed += position - nearest;
  lock.unlock();
  std::vector<int32_t> replay(tokens.begin() + nearest, tokens.end());
  if (found != nullptr) {
    session_ = found->Fork();
    session_.sampler.reset();  // it had drawn more or less than is fed now
  } else {
    session_ = Session();
    session_.state = store_->model.new_sequence();
  }
  return replay;
}

absl::Status SessionLease::Release() {
  if (store_ == nullptr) return absl::OkStatus();
  StoreRecords& store = *std::exchange(store_, nullptr);
  const int64_t position = session_.state.position(), num_tokens = static_cast<int64_t>(session_.tokens.size());
  const absl::Status whole = session_.state.CheckWhole();
  auto session = std::make_shared<const Session>(std::move(session_));
  const uint64_t hash = HashTokens(session->tokens);
  StoreRecord& record = *record_;
  StoreLock lock(store.mutex);
  store.Unreserve(reserved_);
  record.leased = false;
  record.leased_bytes = 0;
  if (!whole.ok() || position != num_tokens) {
    if (!record.path.empty()) {
      record.point = record.in_file;
      store.AddToIndex(record);
    } else if (!record.name.empty()) {
      static_cast<void>(store.RemoveRecord(record_, /*forget=*/false));  // it has no file that could fail to go
    }
    const std::string why = whole.ok()
                                ? absl::StrCat("it has ", num_tokens, " tokens, but its state has taken in ", position)
                                : std::string(whole.message());
    return absl::Status(
        whole.ok() ? absl::StatusCode::kInvalidArgument : whole.code(),
        absl::StrCat(record.name.empty() ? "a session without a name" : absl::StrCat("session \"", record.name, "\""),
                     " cannot be kept: ", why));
  }
  if (record.name.empty()) {
    store.AddSnapshot(std::move(session), hash, /*for_good=*/false, record);
  } else {
    record.point = {position, hash, record.point.version + 1};
    store.SetMemory(record, std::move(session));
    store.AddToIndex(record);
    store.Touch(record);
  }
  return store.MakeRoom(lock);
}

}  // namespace kvm
