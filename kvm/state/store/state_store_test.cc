// Sessions, leases, what is reused of prompts, and going back. Budgets and files have tests of their own.

#include "kvm/state/store/state_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/state/snapshot/snapshot_testing.h"
#include "kvm/state/store/state_store_testing.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kChunk = 8;
constexpr int64_t kPlenty = 1 << 30;

class StateStoreTest : public ::testing::Test {
 protected:
  StateStoreTest() : store_(StateStore::Open(CountingOptions(kPlenty), CountingModel()).value()) {}

  // Feeds a prompt, offering at its chunk boundaries, as a caller would. Returns how many tokens were reused.
  int64_t Prompt(absl::string_view name, const std::vector<int32_t>& prompt) {
    SessionLease lease = store_->Create(name, prompt, 0).value();
    Session& session = lease.session();
    const int64_t reused = session.state.position();
    EXPECT_TRUE(AreEqual(session, Fed(absl::MakeSpan(prompt).first(reused))));
    for (size_t t = reused; t < prompt.size(); ++t) {
      Feed(session, {prompt[t]});
      if ((t + 1) % kChunk == 0) {
        EXPECT_TRUE(lease.Offer().ok());
      }
    }
    EXPECT_TRUE(AreEqual(session, Fed(prompt)));
    EXPECT_TRUE(lease.Release().ok());
    return reused;
  }

  // What the session has now.
  void ExpectSession(absl::string_view name, const std::vector<int32_t>& tokens) {
    SessionLease lease = store_->Lease(name, 0).value();
    EXPECT_TRUE(AreEqual(lease.session(), Fed(tokens))) << name;
  }

  std::unique_ptr<StateStore> store_;
};

TEST_F(StateStoreTest, SessionGoesOnWhereItWas) {
  Prompt("talk", Counting(10));
  {
    SessionLease lease = store_->Lease("talk", 5).value();
    Feed(lease.session(), Counting(5, 10));
  }
  ExpectSession("talk", Counting(15));
}

TEST_F(StateStoreTest, LeaseIsExclusive) {
  SessionLease lease = store_->Create("talk", Counting(3), 0).value();
  const auto expect_leased = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"talk\" is leased"));
  };
  expect_leased(store_->Lease("talk", 0).status());
  expect_leased(store_->Drop("talk"));
  expect_leased(store_->Save("talk"));
  expect_leased(store_->Fork("talk", "other"));
  EXPECT_EQ(store_->Create("talk", Counting(3), 0).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(lease.Release().ok());
  EXPECT_TRUE(lease.Release().ok());  // nothing more to give back
  EXPECT_TRUE(store_->Lease("talk", 0).ok());
}

TEST_F(StateStoreTest, MovedLeaseIsGivenBackOnce) {
  SessionLease a = store_->Create("a", {}, 4).value();
  SessionLease b = store_->Create("b", {}, 4).value();
  Feed(b.session(), Counting(4));
  a = std::move(b);
  EXPECT_FALSE(store_->List()[0].leased);
  EXPECT_TRUE(store_->List()[1].leased);
  { const SessionLease c = std::move(a); }
  EXPECT_EQ(store_->Stats().leased_bytes, 0);
  ExpectSession("b", Counting(4));
}

TEST_F(StateStoreTest, UnknownNamesAreNamed) {
  for (const absl::Status& status : {store_->Lease("x", 0).status(), store_->Drop("x"), store_->Load("x"),
                                     store_->Pin("x"), store_->Unpin("x"), store_->Fork("x", "y")}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"x\""));
  }
  EXPECT_EQ(store_->Create("../x", {}, 0).status().code(), absl::StatusCode::kInvalidArgument);
  Prompt("x", Counting(3));
  EXPECT_EQ(store_->Fork("x", "a/b").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->Fork("x", "x").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(store_->Save("x").code(), absl::StatusCode::kFailedPrecondition);  // no folder
}

TEST_F(StateStoreTest, ForksGoTheirOwnWays) {
  Prompt("a", Counting(10));
  ASSERT_TRUE(store_->Fork("a", "b").ok());
  { Feed(store_->Lease("a", 3).value().session(), {7, 7, 7}); }
  { Feed(store_->Lease("b", 1).value().session(), {9}); }
  std::vector<int32_t> a = Counting(10), b = Counting(10);
  a.insert(a.end(), {7, 7, 7});
  b.push_back(9);
  ExpectSession("a", a);
  ExpectSession("b", b);
  ASSERT_TRUE(store_->Drop("a").ok());
  ExpectSession("b", b);
}

TEST_F(StateStoreTest, ForkTakesNoMemoryOfItsOwn) {
  Prompt("a", Counting(5));
  const int64_t bytes = store_->Stats().memory_bytes;
  EXPECT_EQ(bytes, CountingBytes(5));
  ASSERT_TRUE(store_->Fork("a", "b").ok());
  EXPECT_EQ(store_->Stats().memory_bytes, bytes);
  ASSERT_TRUE(store_->Drop("a").ok());
  EXPECT_EQ(store_->Stats().memory_bytes, bytes);
  ASSERT_TRUE(store_->Drop("b").ok());
  EXPECT_EQ(store_->Stats().memory_bytes, 0);
}

TEST_F(StateStoreTest, ListSaysWhatIsWhere) {
  Prompt("b", Counting(5));
  const SessionLease lease = store_->Create("a", Counting(7, 50), 2).value();
  ASSERT_TRUE(store_->Pin("b").ok());
  const std::vector<SessionInfo> sessions = store_->List();
  ASSERT_EQ(sessions.size(), 2);
  EXPECT_EQ(sessions[0].name, "a");
  EXPECT_TRUE(sessions[0].leased);
  EXPECT_EQ(sessions[0].position, 0);
  EXPECT_EQ(sessions[0].bytes, CountingBytes(9));
  EXPECT_EQ(sessions[1].name, "b");
  EXPECT_EQ(sessions[1].position, 5);
  EXPECT_EQ(sessions[1].bytes, CountingBytes(5));
  EXPECT_TRUE(sessions[1].in_memory);
  EXPECT_FALSE(sessions[1].on_disk);
  EXPECT_TRUE(sessions[1].pinned);
  EXPECT_FALSE(sessions[1].leased);
  EXPECT_LE(sessions[1].last_use, sessions[0].last_use);
  EXPECT_LT(absl::Now() - sessions[1].last_use, absl::Minutes(5));
}

TEST_F(StateStoreTest, LongestBoundaryOfAPromptIsReused) {
  Prompt("first", Counting(44));
  std::vector<int32_t> other = Counting(44);
  other[30] = 999;
  EXPECT_EQ(Prompt("other", other), 24);  // the boundary before token 30
  const StateStoreStats stats = store_->Stats();
  EXPECT_EQ(stats.hits, 1);
  EXPECT_EQ(stats.exact_hits, 0);
  EXPECT_EQ(stats.tokens_reused, 24);
  EXPECT_EQ(stats.nothing_stored, 1);
}

TEST_F(StateStoreTest, PromptsAroundABoundary) {
  Prompt("stored", Counting(16));
  ASSERT_TRUE(store_->Drop("stored").ok());  // leaves the boundaries 8 and 16
  EXPECT_EQ(Prompt("15", Counting(15)), 8);
  EXPECT_EQ(Prompt("16", Counting(16)), 16);
  EXPECT_EQ(Prompt("17", Counting(17)), 16);
  EXPECT_EQ(store_->Stats().exact_hits, 1);
}

TEST_F(StateStoreTest, WholePromptComesWithItsLogits) {
  Prompt("a", Counting(13));
  SessionLease lease = store_->Create("b", Counting(13), 0).value();
  EXPECT_TRUE(AreEqual(lease.session(), Fed(Counting(13))));
  EXPECT_FALSE(lease.session().logits.empty());
  EXPECT_EQ(store_->Stats().exact_hits, 1);
}

TEST_F(StateStoreTest, WholePromptWithoutLogitsIsNoUse) {
  {
    SessionLease lease = store_->Create("a", Counting(16), 0).value();
    Feed(lease.session(), Counting(8));
    ASSERT_TRUE(lease.Offer().ok());
    Feed(lease.session(), Counting(8, 8));
    lease.session().logits.clear();
    ASSERT_TRUE(lease.Offer().ok());
  }
  EXPECT_EQ(Prompt("b", Counting(16)), 8);
  EXPECT_EQ(Prompt("c", Counting(17)), 16);
}

TEST_F(StateStoreTest, EndsOfSessionsAreReused) {
  Prompt("a", Counting(3));
  EXPECT_EQ(Prompt("b", Counting(5)), 3);  // shorter than a chunk, too
  { Feed(store_->Lease("b", 6).value().session(), Counting(6, 5)); }
  EXPECT_EQ(Prompt("c", Counting(11)), 11);
  EXPECT_EQ(Prompt("d", Counting(7)), 5);  // where b was before it went on
}

TEST_F(StateStoreTest, EndsOfSessionsWithoutANameAreReused) {
  Prompt("", Counting(5));
  EXPECT_THAT(store_->List(), IsEmpty());
  EXPECT_EQ(Prompt("", Counting(6)), 5);
  EXPECT_EQ(store_->Stats().snapshots, 2);
}

TEST_F(StateStoreTest, AnotherSessionsSamplerIsNotTakenOver) {
  {
    SessionLease lease = store_->Create("a", Counting(3), 0).value();
    Feed(lease.session(), Counting(3));
    lease.session().sampler = SamplerState();
  }
  EXPECT_FALSE(store_->Create("b", Counting(3), 0).value().session().sampler.has_value());
  EXPECT_TRUE(store_->Lease("a", 0).value().session().sampler.has_value());
}

TEST_F(StateStoreTest, MissesSayWhy) {
  Prompt("a", Counting(20));
  EXPECT_EQ(store_->Stats().nothing_stored, 1);
  EXPECT_EQ(Prompt("b", Counting(5, 100)), 0);
  EXPECT_EQ(store_->Stats().shorter_than_chunk, 1);
  EXPECT_EQ(Prompt("c", Counting(20, 200)), 0);
  EXPECT_EQ(store_->Stats().first_tokens_differ, 1);
  // Snapshots of "d" that are not kept for good go when there are four newer ones.
  {
    SessionLease lease = store_->Create("d", Counting(7, 300), 0).value();
    for (int32_t t = 300; t < 307; ++t) {
      Feed(lease.session(), {t});
      ASSERT_TRUE(lease.Offer().ok());
    }
  }
  EXPECT_EQ(Prompt("e", Counting(3, 300)), 0);
  EXPECT_EQ(store_->Stats().evicted, 1);
  EXPECT_EQ(store_->Stats().hits, 0);
  EXPECT_EQ(Prompt("f", {}), 0);  // neither hit nor miss
  const StateStoreStats stats = store_->Stats();
  EXPECT_EQ(stats.nothing_stored + stats.shorter_than_chunk + stats.first_tokens_differ + stats.evicted, 5);
}

TEST_F(StateStoreTest, ALongContextKeepsAsManyBeginningsAsTheRuleSays) {
  Prompt("long", Counting(64 * kChunk));
  // Boundaries 1-8, 10, …, 16, 20, …, 32, 40, …, 64, and the last four that are not among them; the end is one of them.
  EXPECT_EQ(store_->Stats().snapshots, 20 + 4);
  std::vector<int32_t> other = Counting(64 * kChunk);
  other[5 * kChunk + 3] = -1;
  EXPECT_EQ(Prompt("early", other), 5 * kChunk);
  other = Counting(64 * kChunk);
  other[63 * kChunk + 1] = -1;
  EXPECT_EQ(Prompt("late", other), 63 * kChunk);
}

TEST_F(StateStoreTest, EarlyBeginningsOfAMillionTokensSurvive) {
  constexpr int64_t kTokens = 1 << 20, kLongChunk = 4096;
  StateStoreOptions options = CountingOptions(kPlenty);
  options.retention = {kLongChunk, /*per_doubling=*/4, /*recent=*/2};
  const auto store = StateStore::Open(options, CountingModel()).value();
  SessionLease lease = store->Create("long", {}, kTokens).value();
  Session& session = lease.session();
  for (int32_t t = 0; t < kTokens; ++t) {
    session.tokens.push_back(t);  // what the states are does not matter here
    SequenceAccess::EndPass(session.state, 1);
    if ((t + 1) % kLongChunk == 0) {
      ASSERT_TRUE(lease.Offer().ok());
    }
  }
  // 256 boundaries: eight, then four for each of five doublings; and two recent ones.
  EXPECT_EQ(store->Stats().snapshots, 8 + 5 * 4 + 2);
  for (int64_t position = kTokens - 1; position > 0; position = position * 3 / 4) {
    const std::vector<int32_t> replay = lease.Rewind(position).value();
    EXPECT_LT(static_cast<int64_t>(replay.size()), std::max(kLongChunk, position / 4));
    for (int32_t token : replay) session.tokens.push_back(token);
    SequenceAccess::EndPass(session.state, static_cast<int64_t>(replay.size()));
    ASSERT_EQ(session.state.position(), position);
  }
}

TEST_F(StateStoreTest, RewindFeedsAgainFromTheNearestSnapshot) {
  Prompt("a", Counting(30));
  SessionLease lease = store_->Lease("a", 0).value();
  EXPECT_EQ(lease.Rewind(27).value(), Counting(3, 24));
  EXPECT_TRUE(AreEqual(lease.session(), Fed(Counting(24))));
  Feed(lease.session(), Counting(3, 24));
  EXPECT_EQ(lease.Rewind(16).value(), Counting(0));
  EXPECT_TRUE(AreEqual(lease.session(), Fed(Counting(16))));
  EXPECT_EQ(lease.Rewind(5).value(), Counting(5));  // before the first boundary: from the beginning
  EXPECT_EQ(lease.session().state.position(), 0);
  EXPECT_EQ(store_->Stats().tokens_replayed, 3 + 5);
  Feed(lease.session(), Counting(5));
  ASSERT_TRUE(lease.Release().ok());
  ExpectSession("a", Counting(5));
  // The way back to where it was is still there.
  EXPECT_EQ(Prompt("b", Counting(30)), 30);
}

TEST_F(StateStoreTest, RewindIsRefusedWithWhatItWouldTake) {
  Prompt("a", Counting(30));
  SessionLease lease = store_->Lease("a", 0).value();
  const absl::Status far = lease.Rewind(23, /*max_replay=*/6).status();
  EXPECT_EQ(far.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(far.message()), HasSubstr("at 16"));
  EXPECT_THAT(std::string(far.message()), HasSubstr("7 tokens"));
  EXPECT_EQ(lease.Rewind(31).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(lease.Rewind(-1).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(lease.Rewind(30).value(), Counting(0));
  EXPECT_TRUE(AreEqual(lease.session(), Fed(Counting(30))));
  EXPECT_EQ(store_->Stats().tokens_replayed, 0);
}

TEST_F(StateStoreTest, BrokenSessionIsNotKept) {
  {
    SessionLease lease = store_->Create("a", Counting(5), 0).value();
    Feed(lease.session(), Counting(5));
    lease.session().tokens.pop_back();
    EXPECT_EQ(lease.Offer().code(), absl::StatusCode::kInvalidArgument);
    const absl::Status status = lease.Release();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"a\""));
  }
  EXPECT_THAT(store_->List(), IsEmpty());
  EXPECT_EQ(store_->Stats().memory_bytes + store_->Stats().leased_bytes, 0);
  EXPECT_EQ(Prompt("a", Counting(5)), 0);
}

TEST_F(StateStoreTest, ImpossibleOptionsAreNamed) {
  const auto message = [](const StateStoreOptions& options) {
    return std::string(StateStore::Open(options, CountingModel()).status().message());
  };
  EXPECT_THAT(message(CountingOptions(0)), HasSubstr("memory_budget is 0"));
  StateStoreOptions options = CountingOptions(1);
  options.disk_budget = -1;
  EXPECT_THAT(message(options), HasSubstr("disk_budget is -1"));
  options = CountingOptions(1);
  options.retention.chunk = -3;
  EXPECT_THAT(message(options), HasSubstr("chunk is -3"));
  EXPECT_THAT(std::string(store_->Create("a", {}, -1).status().message()), HasSubstr("max_new_tokens is -1"));
}

}  // namespace
}  // namespace kvm
