// Every stack of test_stacks.h: a generation that is interrupted, written to a file and read back into another
// model goes on to the bit as if nothing had happened, on any number of threads.

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/model/generator.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/state/model_identity.h"
#include "kvm/state/snapshot/session.h"
#include "kvm/state/snapshot/snapshot.h"
#include "kvm/state/state_fields.h"
#include "testing/conformance/random_weights.h"
#include "testing/conformance/test_stacks.h"

namespace kvm {
namespace {

constexpr int64_t kGenerated = 40;

using Parameters = std::tuple<TestStack, DType>;

class ResumeTest : public ::testing::TestWithParam<Parameters> {
 protected:
  ResumeTest() : stack_(std::get<0>(GetParam())) {
    options_.state = std::get<1>(GetParam());
    weights_ = RandomWeights(stack_.spec, stack_.seed);
    identity_ = {1, WeightType::kAsStored, options_.state, false, ""};
    prompt_ = TestTokens(stack_.spec, 21, 5);
    sampler_.temperature = 1.2;
    sampler_.top_p = 0.95;
    sampler_.repetition_penalty = 1.1;
    sampler_.seed = 3;
  }

  std::unique_ptr<LanguageModel> NewModel() const {
    return LanguageModel::Create(stack_.spec, *weights_, options_).value();
  }

  // Extends a session by the prompt and `count` drawn tokens; without `sampler` it goes on with its own.
  static void Generate(const LanguageModel& model, int threads, absl::Span<const int32_t> prompt, int64_t count,
                       std::optional<SamplerOptions> sampler, Session* session) {
    ExecutionContext context(threads, /*oversubscribe=*/true);
    GeneratorOptions options;
    options.max_tokens = count;
    options.sampler = sampler;
    const auto stats = kvm::Generate(model, *session, prompt, options, context, [](int32_t) { return true; });
    ASSERT_TRUE(stats.ok()) << stats.status();
    ASSERT_EQ(stats->generated_tokens, count);
  }

  TestStack stack_;
  ModelOptions options_;
  std::unique_ptr<WeightSource> weights_;
  ModelIdentity identity_;
  std::vector<int32_t> prompt_;
  SamplerOptions sampler_;
};

TEST_P(ResumeTest, GoesOnFromAFileToTheBit) {
  const std::unique_ptr<LanguageModel> model = NewModel();
  Session whole;
  whole.state = model->NewSequence();
  ASSERT_NO_FATAL_FAILURE(Generate(*model, 1, prompt_, kGenerated, sampler_, &whole));

  const std::unique_ptr<LanguageModel> other = NewModel();
  const std::string path = testing::TempDir() + "/resume.kvmstate";
  for (const int64_t first : {0, 2, 3, 15, 27, 40}) {
    const int threads = 1 + static_cast<int>(first % 3);
    Session session;
    session.state = model->NewSequence();
    ASSERT_NO_FATAL_FAILURE(Generate(*model, threads, prompt_, first, sampler_, &session));
    ASSERT_TRUE(WriteSnapshot(path, session, identity_).ok());
    ThreadPool pool(threads, /*oversubscribe=*/true);
    absl::StatusOr<Session> restored = ReadSnapshot(path, identity_, other->NewSequence(), &pool);
    ASSERT_TRUE(restored.ok()) << restored.status();
    ASSERT_EQ(restored->state.ByteSize(), session.state.ByteSize());
    ASSERT_NO_FATAL_FAILURE(Generate(*other, 4 - threads, {}, kGenerated - first, std::nullopt, &*restored));
    EXPECT_EQ(restored->tokens, whole.tokens) << "after " << first;
    EXPECT_EQ(restored->logits, whole.logits) << "after " << first;
    EXPECT_EQ(restored->sampler->draws, whole.sampler->draws);
  }
}

// What follows from other numbers of a state is not believed.
bool IsDerived(const std::string& name) {
  for (const char* const ending : {".readout_keys", ".readout_values", ".readout_key_scales", ".log_counts"}) {
    if (absl::EndsWith(name, ending)) return true;
  }
  return false;
}

TEST_P(ResumeTest, ForgedReadoutsBecomeThoseOfTheirSums) {
  const std::unique_ptr<LanguageModel> model = NewModel();
  Session session;
  session.state = model->NewSequence();
  ASSERT_NO_FATAL_FAILURE(Generate(*model, 1, prompt_, 27, sampler_, &session));
  StateFields honest;
  EXPECT_TRUE(session.state.Save(StateWriter(&honest)).ok());
  StateFields forged = honest;
  std::vector<std::string> copies;
  copies.reserve(forged.tensors.size());
  for (StateTensor& tensor : forged.tensors) {
    if (!IsDerived(tensor.name)) continue;
    const size_t size = static_cast<size_t>(tensor.view.byte_size());
    copies.emplace_back(static_cast<const char*>(tensor.view.data), size);
    copies.back().replace(0, size / 2, size / 2, '\x3e');  // finite, whatever the dtype
    tensor.view.data = copies.back().data();
  }
  SequenceState restored = model->NewSequence();
  ASSERT_TRUE(restored.Restore(StateReader(forged)).ok());
  StateFields fields;
  EXPECT_TRUE(restored.Save(StateWriter(&fields)).ok());
  ASSERT_EQ(fields.tensors.size(), honest.tensors.size());
  for (size_t i = 0; i < fields.tensors.size(); ++i) {
    const TensorView &a = fields.tensors[i].view, &b = honest.tensors[i].view;
    if (absl::EndsWith(honest.tensors[i].name, ".readout_keys")) continue;  // lanes past the rows are anybody's
    EXPECT_EQ(std::memcmp(a.data, b.data, static_cast<size_t>(a.byte_size())), 0) << honest.tensors[i].name;
  }
  // Keys by what they do.
  Session other = {std::move(restored), session.tokens, session.logits, session.sampler};
  ASSERT_NO_FATAL_FAILURE(Generate(*model, 1, {}, 5, std::nullopt, &session));
  ASSERT_NO_FATAL_FAILURE(Generate(*model, 1, {}, 5, std::nullopt, &other));
  EXPECT_EQ(other.tokens, session.tokens);
  EXPECT_EQ(other.logits, session.logits);
}

INSTANTIATE_TEST_SUITE_P(All, ResumeTest,
                         ::testing::Combine(::testing::ValuesIn(TestStacks()),
                                            ::testing::Values(DType::kF32, DType::kI8)),
                         [](const ::testing::TestParamInfo<Parameters>& info) {
                           return absl::StrCat(std::get<0>(info.param).name, "_", Name(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace kvm
