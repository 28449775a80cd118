// A second engine keeps every promise of the seam: the conformance suite on every stack that has a reference, snapshots
// and the store. And the processor computes what it computes.

#include "testing/reference_model/reference_engine.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/state/snapshot/snapshot.h"
#include "kvm/state/store/state_store.h"
#include "testing/conformance/conformance.h"
#include "testing/conformance/model_runs.h"
#include "testing/conformance/random_weights.h"
#include "testing/conformance/state_conformance.h"
#include "testing/conformance/test_stacks.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

ModelOptions WithReference() {
  ModelOptions options;
  options.engine = &NewReferenceEngine;
  return options;
}

class ReferenceEngineTest : public ::testing::TestWithParam<TestStack> {
 protected:
  ConformanceSubject subject_{GetParam(), WithReference()};
};

TEST_P(ReferenceEngineTest, SameBitsInPieces) { ExpectSameBitsInPieces(subject_); }
TEST_P(ReferenceEngineTest, SameBitsInRaggedBatches) { ExpectSameBitsInRaggedBatches(subject_); }
TEST_P(ReferenceEngineTest, SameBitsWithThreads) { ExpectSameBitsWithThreads(subject_); }
TEST_P(ReferenceEngineTest, SameBitsForFewerLogits) { ExpectSameBitsForFewerLogits(subject_); }
TEST_P(ReferenceEngineTest, ForksAreIndependent) { ExpectForksAreIndependent(subject_); }
TEST_P(ReferenceEngineTest, Causality) { ExpectCausality(subject_); }
TEST_P(ReferenceEngineTest, PredictedStateSize) { ExpectPredictedStateSize(subject_); }
TEST_P(ReferenceEngineTest, BadBatchesChangeNothing) { ExpectBadBatchesChangeNothing(subject_); }
TEST_P(ReferenceEngineTest, RestoredStatesGoOn) { ExpectRestoredStatesGoOn(subject_); }
TEST_P(ReferenceEngineTest, BadFieldsAreRefused) { ExpectBadFieldsAreRefused(subject_); }
TEST_P(ReferenceEngineTest, ForksShareUntilExtended) { ExpectForksShareUntilExtended(subject_); }

TEST_P(ReferenceEngineTest, TheProcessorComputesTheSame) {
  const ConformanceSubject processor(GetParam(), ModelOptions());
  // Those of the comparison with the reference, for which rounding decides no route.
  const std::vector<int32_t> tokens = TestTokens(GetParam().spec, GetParam().num_tokens, GetParam().seed);
  ExecutionContext context(1);
  SequenceState a = subject_.model->NewSequence(), b = processor.model->NewSequence();
  const std::vector<SequenceRun> expected = RunInPieces(*subject_.model, {{&a, tokens, {}}}, context).value();
  const std::vector<SequenceRun> got = RunInPieces(*processor.model, {{&b, tokens, {}}}, context).value();
  for (size_t i = 0; i < expected[0].logits.size(); ++i) {
    ASSERT_NEAR(got[0].logits[i], expected[0].logits[i], 1e-4) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReferenceEngineTest, ::testing::ValuesIn(ReferenceStacks()),
                         [](const auto& info) { return info.param.name; });

TEST(ReferenceEngineStateTest, ForeignStatesAreRefused) {
  std::vector<ConformanceSubject> subjects;
  for (TestStack stack : ReferenceStacks()) {
    if (subjects.size() == 3) break;
    // Tokens of one are beyond the vocabulary of another.
    stack.spec.set_vocab_size(50 - 20 * static_cast<int>(subjects.size()));
    subjects.emplace_back(stack, WithReference());
  }
  ExpectForeignStatesAreRefused(subjects);
}

class ReferenceSessionTest : public ::testing::Test {
 protected:
  void Feed(Session& session, absl::Span<const int32_t> tokens) {
    session.logits.resize(model().vocab_size());
    const MatrixView<float> logits(session.logits.data(), 1, model().vocab_size());
    const absl::Status extended = model().Extend({{&session.state, tokens, logits}}, context_);
    ASSERT_TRUE(extended.ok()) << extended;
    session.tokens.insert(session.tokens.end(), tokens.begin(), tokens.end());
  }
  const LanguageModel& model() const { return *subject_.model; }

  ConformanceSubject subject_{ReferenceStacks().front(), WithReference()};
  ExecutionContext context_{1};
  std::vector<int32_t> tokens_ = TestTokens(subject_.stack.spec, 30, 1);
  ModelIdentity identity_{1, WeightType::kAsStored, DType::kF32, false, ""};
};

TEST_F(ReferenceSessionTest, SnapshotsGoOn) {
  const absl::Span<const int32_t> all = tokens_;
  Session session{model().NewSequence(), {}, {}, {}};
  Feed(session, all.first(20));
  const std::string path = ::testing::TempDir() + "/reference.kvmstate";
  ASSERT_TRUE(WriteSnapshot(path, session, identity_).ok());
  absl::StatusOr<Session> restored = ReadSnapshot(path, identity_, model().NewSequence());
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->tokens, session.tokens);
  Feed(session, all.subspan(20));
  Feed(*restored, all.subspan(20));
  EXPECT_EQ(CountDifferentBits(restored->logits, session.logits), 0);
}

TEST_F(ReferenceSessionTest, AStoreSessionStartsFromAnotherAndEndsTheSame) {
  const absl::Span<const int32_t> all = tokens_;
  StateStoreOptions options;
  options.memory_budget = 1 << 20;
  StoreModel of_model;
  of_model.identity = identity_;
  of_model.new_sequence = [this] { return model().NewSequence(); };
  of_model.bytes_at = [this](int64_t tokens) { return model().SizeOf(tokens).bytes; };
  of_model.vocab_size = model().vocab_size();
  const std::unique_ptr<StateStore> store = StateStore::Open(options, of_model).value();
  {
    SessionLease first = store->Create("first", all.first(20), 0).value();
    Feed(first.session(), all.first(20));
    ASSERT_TRUE(first.Keep().ok());
    ASSERT_TRUE(first.Release().ok());
  }
  SessionLease second = store->Create("second", tokens_, 0).value();
  ASSERT_EQ(second.session().tokens.size(), 20u);
  Feed(second.session(), all.subspan(20));
  Session whole{model().NewSequence(), {}, {}, {}};
  Feed(whole, all);
  EXPECT_EQ(CountDifferentBits(second.session().logits, whole.logits), 0);
}

TEST_F(ReferenceSessionTest, HostileTokensAreRefusedByName) {
  Session session{model().NewSequence(), {}, {}, {}};
  Feed(session, tokens_);
  StateFields fields;
  ASSERT_TRUE(session.state.Save(StateWriter(&fields)).ok());
  for (const int32_t id : {-1, static_cast<int32_t>(model().vocab_size())}) {
    std::vector<int32_t> ids = tokens_;
    ids[5] = id;
    fields.tensors[0].view.data = ids.data();
    SequenceState restored = model().NewSequence();
    const absl::Status status = restored.Restore(StateReader(fields));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("layer.0.tokens"));
  }
}

TEST(ReferenceEngineOptionsTest, OnesThatItDoesNotKnowAreRefused) {
  const TestStack stack = ReferenceStacks().front();
  ModelOptions options = WithReference();
  options.state = DType::kBF16;
  const auto refused = LanguageModel::Create(stack.spec, *RandomWeights(stack.spec, 1), options);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("states of BF16"));
  for (const TestStack& other : TestStacks()) {
    const auto made = LanguageModel::Create(other.spec, *RandomWeights(other.spec, 1), WithReference());
    EXPECT_EQ(made.ok(), other.has_reference) << other.name << ": " << made.status();
  }
}

}  // namespace
}  // namespace kvm
