// Memory that runs out anywhere in a pass, in any layer: the sequence is as it was, or it is broken and refused by
// everything that could keep it or go on with it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/model/language_model.h"
#include "kvm/state/snapshot/session.h"
#include "kvm/state/snapshot/snapshot.h"
#include "kvm/state/state_fields.h"
#include "kvm/state/store/state_store.h"
#include "testing/conformance/model_runs.h"
#include "testing/conformance/random_weights.h"
#include "testing/conformance/test_stacks.h"

namespace {

// Allocations until one fails, once; negative: none does.
std::atomic<int64_t> until_failure{-1};

void* Allocate(size_t size, size_t alignment) {
  if (until_failure.load() >= 0 && until_failure.fetch_sub(1) == 0) throw std::bad_alloc();
  void* const memory = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Every other form of new ends in one of these.
void* operator new(size_t size) { return Allocate(size, alignof(std::max_align_t)); }
void* operator new(size_t size, std::align_val_t alignment) { return Allocate(size, static_cast<size_t>(alignment)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace kvm {
namespace {

constexpr int64_t kPast = 3 * kTestChunk;  // the next token updates the rows
const ModelIdentity kIdentity = {1, WeightType::kAsStored, DType::kF32, false, "a test stack"};

class FailedPassTest : public ::testing::TestWithParam<TestStack> {
 protected:
  FailedPassTest()
      : model_(LanguageModel::Create(GetParam().spec, *RandomWeights(GetParam().spec, GetParam().seed), {}).value()),
        tokens_(TestTokens(GetParam().spec, kPast + 3, 5)) {}

  absl::Span<const int32_t> Past() const { return absl::MakeConstSpan(tokens_).first(kPast); }
  absl::Span<const int32_t> Next() const { return absl::MakeConstSpan(tokens_).subspan(kPast); }

  SequenceState AfterThePast() {
    ExecutionContext context(1);
    SequenceState sequence = model_->NewSequence();
    EXPECT_TRUE(model_->Extend({{&sequence, Past(), {}}}, context).ok());
    return sequence;
  }

  // Extends by the next tokens with memory that runs out at allocation `n`, in a context of its own: one that is warm
  // allocates less.
  absl::Status ExtendOutOfMemory(SequenceState& sequence, int64_t n) {
    ExecutionContext context(1);
    std::vector<float> logits(static_cast<size_t>(model_->vocab_size()));
    const SequenceInput input = {&sequence, Next(), {logits.data(), 1, model_->vocab_size()}};
    until_failure = n;
    absl::Status status = model_->Extend({input}, context);
    ran_out_ = until_failure.exchange(-1) < 0;
    return status;
  }

  std::vector<float> GoOn(SequenceState& sequence) {
    ExecutionContext context(1);
    std::vector<float> logits(static_cast<size_t>(model_->vocab_size()));
    EXPECT_TRUE(model_->Extend({{&sequence, Next(), {logits.data(), 1, model_->vocab_size()}}}, context).ok());
    return logits;
  }

  void ExpectRefusedEverywhere(SequenceState broken) {
    constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
    ExecutionContext context(1);
    EXPECT_EQ(model_->Extend({{&broken, Next(), {}}}, context).code(), kRefused);
    StateFields fields;
    EXPECT_EQ(broken.Save(StateWriter(&fields)).code(), kRefused);
    EXPECT_EQ(broken.Export().status().code(), kRefused);
    EXPECT_TRUE(broken.Fork().broken());
    Session session = {std::move(broken), {tokens_.begin(), tokens_.begin() + kPast}, {}, {}};
    EXPECT_EQ(WriteSnapshot(::testing::TempDir() + "broken.kvmstate", session, kIdentity).code(), kRefused);
    ExpectNotKept(std::move(session));
  }

  // A store's lease whose sequence broke: neither the session nor a beginning of it stays.
  void ExpectNotKept(Session broken) {
    StateStoreOptions options;
    options.memory_budget = int64_t{1} << 30;
    const StoreModel model = {kIdentity, [&] { return model_->NewSequence(); },
                              [&](int64_t tokens) { return model_->SizeOf(tokens).bytes; }, model_->vocab_size()};
    const auto store = StateStore::Open(std::move(options), model).value();
    SessionLease lease = store->Create("talk", {}, 100).value();
    lease.session() = std::move(broken);
    EXPECT_EQ(lease.Keep().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(lease.Release().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(store->Stats().memory_bytes, 0);
  }

  std::unique_ptr<LanguageModel> model_;
  std::vector<int32_t> tokens_;
  bool ran_out_ = false;
};

TEST_P(FailedPassTest, ASequenceIsWholeOrRefused) {
  const SequenceState past = AfterThePast();
  SequenceState whole = past.Fork();
  const std::vector<float> expected = GoOn(whole);
  int64_t num_whole = 0, num_broken = 0;
  for (int64_t n = 0;; ++n) {
    SequenceState sequence = past.Fork();
    const absl::Status status = ExtendOutOfMemory(sequence, n);
    if (!ran_out_) {
      EXPECT_TRUE(status.ok()) << status;
      break;
    }
    ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << "allocation " << n;
    ASSERT_EQ(sequence.position(), kPast);
    if (!sequence.broken()) {
      ++num_whole;
      ASSERT_EQ(CountDifferentBits(GoOn(sequence), expected), 0) << "allocation " << n;
    } else if (++num_broken; num_broken == 1 || n % 7 == 0) {
      ExpectRefusedEverywhere(std::move(sequence));
    }
  }
  EXPECT_GT(num_whole, 0);
  EXPECT_GT(num_broken, GetParam().spec.layers_size());
  // What it was forked from saw nothing of all that.
  SequenceState untouched = past.Fork();
  EXPECT_EQ(CountDifferentBits(GoOn(untouched), expected), 0);
}

INSTANTIATE_TEST_SUITE_P(Stacks, FailedPassTest, ::testing::ValuesIn(TestStacks()),
                         [](const ::testing::TestParamInfo<TestStack>& info) { return info.param.name; });

}  // namespace
}  // namespace kvm
