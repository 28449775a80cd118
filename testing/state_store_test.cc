// Every stack of test_stacks.h: sessions that start from stored beginnings, that were on disk meanwhile, or that went
// back are to the bit those that were fed from the beginning. And the store's sizes are the stack's.

#include "kvm/state/store/state_store.h"

#include <stdlib.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/model/engine/state_size.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/state/snapshot/session.h"
#include "kvm/state/state_fields.h"
#include "testing/conformance/random_weights.h"
#include "testing/conformance/test_stacks.h"

namespace kvm {
namespace {

constexpr int64_t kPlenty = 1 << 30;

// Names, numbers and bytes of all that a session consists of.
std::vector<std::string> ContentsOf(const Session& session) {
  StateFields fields;
  EXPECT_TRUE(session.state.Save(StateWriter(&fields)).ok());
  std::vector<std::string> contents;
  for (const StateNumber& number : fields.numbers) contents.push_back(absl::StrCat(number.name, "=", number.value));
  for (const StateTensor& tensor : fields.tensors) {
    contents.push_back(tensor.name);
    contents.emplace_back(static_cast<const char*>(tensor.view.data), tensor.view.byte_size());
  }
  contents.emplace_back(reinterpret_cast<const char*>(session.logits.data()), session.logits.size() * sizeof(float));
  contents.emplace_back(reinterpret_cast<const char*>(session.tokens.data()), session.tokens.size() * sizeof(int32_t));
  return contents;
}

class StoredModelTest : public ::testing::TestWithParam<TestStack> {
 protected:
  StoredModelTest() : context_(1) {
    const TestStack& stack = GetParam();
    ModelOptions options;
    options.state = DType::kF32;
    model_ = LanguageModel::Create(stack.spec, *RandomWeights(stack.spec, stack.seed), options).value();
    prompt_ = TestTokens(stack.spec, stack.num_tokens, 1);
    // Begins like it for two thirds and a bit, so that it leaves it within a chunk.
    fork_at_ = stack.num_tokens * 2 / 3 / kTestChunk * kTestChunk + 3;
    other_prompt_ = prompt_;
    for (int64_t t = fork_at_; t < stack.num_tokens; ++t) {
      other_prompt_[t] = (other_prompt_[t] + 1) % static_cast<int32_t>(model_->vocab_size());
    }
  }

  StoreModel ForStore() const {
    StoreModel model;
    model.identity = {1, WeightType::kAsStored, DType::kF32, false, ""};
    model.new_sequence = [this] { return model_->NewSequence(); };
    model.bytes_at = [](int64_t tokens) { return SequenceStateSize(GetParam().spec, DType::kF32, tokens).bytes; };
    model.vocab_size = model_->vocab_size();
    return model;
  }

  int64_t BytesOf(int64_t tokens) const {
    return SequenceStateSize(GetParam().spec, DType::kF32, tokens).bytes + 4 * tokens + 4 * model_->vocab_size();
  }

  std::unique_ptr<StateStore> Open(int64_t memory_budget, const std::string& folder) const {
    StateStoreOptions options;
    options.memory_budget = memory_budget;
    options.folder = folder;
    options.retention = {/*chunk=*/kTestChunk, /*per_doubling=*/4, /*recent=*/2};
    return StateStore::Open(options, ForStore()).value();
  }

  static std::string NewFolder() {
    std::string folder = testing::TempDir() + "/stored_modelXXXXXX";
    EXPECT_NE(mkdtemp(&folder[0]), nullptr);
    return folder;
  }

  void Feed(Session& session, absl::Span<const int32_t> tokens) {
    if (tokens.empty()) return;
    session.logits.resize(model_->vocab_size());
    const MatrixView<float> logits(session.logits.data(), 1, model_->vocab_size());
    const absl::Status extended = model_->Extend({{&session.state, tokens, logits}}, context_);
    ASSERT_TRUE(extended.ok()) << extended;
    session.tokens.insert(session.tokens.end(), tokens.begin(), tokens.end());
  }

  // Feeds what a lease does not have of a prompt, chunk by chunk.
  void FeedRest(SessionLease& lease, const std::vector<int32_t>& prompt) {
    Session& session = lease.session();
    while (session.tokens.size() < prompt.size()) {
      const size_t begin = session.tokens.size();
      const size_t end = std::min(prompt.size(), (begin / kTestChunk + 1) * kTestChunk);
      Feed(session, absl::MakeSpan(prompt).subspan(begin, end - begin));
      if (end % kTestChunk != 0) continue;
      const absl::Status offered = lease.Offer();
      ASSERT_TRUE(offered.ok()) << offered;
    }
  }

  // Without any store, all at once.
  std::vector<std::string> Expected(const std::vector<int32_t>& tokens) {
    Session session;
    session.state = model_->NewSequence();
    Feed(session, tokens);
    return ContentsOf(session);
  }

  ExecutionContext context_;
  std::unique_ptr<LanguageModel> model_;
  std::vector<int32_t> prompt_, other_prompt_;
  int64_t fork_at_ = 0;
};

TEST_P(StoredModelTest, ReuseChangesNoBit) {
  const auto store = Open(kPlenty, "");
  {
    SessionLease lease = store->Create("first", prompt_, 0).value();
    FeedRest(lease, prompt_);
    EXPECT_EQ(ContentsOf(lease.session()), Expected(prompt_));
    const int64_t bytes = lease.session().ByteSize(), predicted = BytesOf(static_cast<int64_t>(prompt_.size()));
    EXPECT_LE(bytes, predicted);
    const auto& mixers = GetParam().spec.mixers();
    if (std::none_of(mixers.begin(), mixers.end(), [](const MixerSpec& mixer) { return IsUpperBound(mixer); })) {
      EXPECT_EQ(bytes, predicted);
    }
  }
  {
    SessionLease lease = store->Create("other", other_prompt_, 0).value();
    EXPECT_GE(lease.session().state.position(), kTestChunk);
    EXPECT_LT(lease.session().state.position(), fork_at_);
    FeedRest(lease, other_prompt_);
    EXPECT_EQ(ContentsOf(lease.session()), Expected(other_prompt_));
  }
  // Nothing to compute; and the first is as it was although others went on from it.
  for (const auto& prompt : {prompt_, other_prompt_}) {
    SessionLease lease = store->Create("", prompt, 0).value();
    EXPECT_EQ(ContentsOf(lease.session()), Expected(prompt));
  }
  EXPECT_EQ(store->Stats().exact_hits, 2);
  EXPECT_EQ(ContentsOf(store->Lease("first", 0).value().session()), Expected(prompt_));
}

TEST_P(StoredModelTest, TheWayOverDiskChangesNoBit) {
  const int64_t tokens = static_cast<int64_t>(prompt_.size());
  const std::string folder = NewFolder();
  {
    const auto store = Open(BytesOf(tokens), folder);  // room for one at a time
    for (const auto& [name, prompt] : {std::pair("first", prompt_), std::pair("other", other_prompt_)}) {
      SessionLease lease = store->Create(name, prompt, 0).value();
      FeedRest(lease, prompt);
      const absl::Status released = lease.Release();
      ASSERT_TRUE(released.ok()) << released;
    }
    EXPECT_EQ(ContentsOf(store->Lease("first", 0).value().session()), Expected(prompt_));
    EXPECT_EQ(ContentsOf(store->Lease("other", 0).value().session()), Expected(other_prompt_));
    EXPECT_GE(store->Stats().restored, 2);
    for (const char* name : {"first", "other"}) ASSERT_TRUE(store->Save(name).ok());
  }
  const auto store = Open(kPlenty, folder);
  SessionLease lease = store->Lease("first", 2).value();
  std::vector<int32_t> longer = prompt_;
  longer.insert(longer.end(), {3, 4});
  Feed(lease.session(), {3});
  Feed(lease.session(), {4});
  EXPECT_EQ(ContentsOf(lease.session()), Expected(longer));
}

TEST_P(StoredModelTest, GoingBackChangesNoBit) {
  const auto store = Open(kPlenty, "");
  SessionLease lease = store->Create("first", prompt_, 0).value();
  FeedRest(lease, prompt_);
  const std::vector<int32_t> replay = lease.Rewind(fork_at_).value();
  EXPECT_LT(static_cast<int64_t>(replay.size()), fork_at_);
  Feed(lease.session(), replay);
  Feed(lease.session(), absl::MakeSpan(other_prompt_).subspan(fork_at_));
  EXPECT_EQ(ContentsOf(lease.session()), Expected(other_prompt_));
}

INSTANTIATE_TEST_SUITE_P(Stacks, StoredModelTest, ::testing::ValuesIn(TestStacks()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kvm
