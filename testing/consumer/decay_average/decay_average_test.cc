// A mixer that lives in this workspace, in stacks of kvm: read from text, loaded from a checkpoint, run, saved and held
// to the promises that every mixer of kvm keeps.

#include "decay_average/decay_average.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/language_model.h"
#include "kvm/model/mixers/cpu_mixers.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/initializer.h"
#include "kvm/model/weights/parameters.h"
#include "kvm/state/snapshot/snapshot.h"
#include "testing/conformance/conformance.h"
#include "testing/conformance/random_weights.h"
#include "testing/conformance/state_conformance.h"
#include "testing/conformance/test_stacks.h"

namespace consumer {
namespace {

using ::testing::HasSubstr;

const kvm::MixerKinds& Kinds() {
  static const kvm::MixerKinds kinds = kvm::BuiltinMixerKinds().With(DecayAverageKind());
  return kinds;
}

kvm::ModelOptions Options() {
  static const kvm::CpuMixers mixers = kvm::BuiltinCpuMixers().With({&DecayAverageKind(), NewDecayAverageMixer});
  kvm::ModelOptions options;
  options.kinds = &Kinds();
  options.cpu_mixers = &mixers;
  return options;
}

// `mixer` is the text of the mixer "average".
absl::StatusOr<kvm::StackSpec> Stack(const std::string& mixer, const std::string& layers) {
  const std::string text = "vocab_size: 50 width: 32 mlp_token_shift: true mixers { name: \"average\" " + mixer +
                           " } mixers { name: \"kvm\" kvm { projections { num_heads: 2 rotary_dim: 8 } chunk_len: 8 "
                           "budget { growth: POWER_LAW factor: 2 min_rows: 8 max_chunks: 10000 } } } layers: [" +
                           layers + "]";
  return kvm::ParseStackSpec(text, "stack.textproto", Kinds());
}

kvm::StackSpec Hybrid() {
  return Stack("[consumer.decay_average] { channels: 70 }", "\"average\", \"kvm\", \"average\"").value();
}

std::vector<kvm::TestStack> Stacks() {
  constexpr int64_t kTokens = 6 * kvm::kTestChunk + 3;
  return {{"hybrid", Hybrid(), kTokens},
          {"alone", Stack("[consumer.decay_average] {}", "\"average\", \"average\"").value(), kTokens}};
}

// The suite that kvm's own mixers pass.
class DecayAverageConformanceTest : public ::testing::TestWithParam<kvm::TestStack> {
 protected:
  kvm::ConformanceSubject subject_{GetParam(), Options()};
};

TEST_P(DecayAverageConformanceTest, SameBitsInPieces) { ExpectSameBitsInPieces(subject_); }
TEST_P(DecayAverageConformanceTest, SameBitsInRaggedBatches) { ExpectSameBitsInRaggedBatches(subject_); }
TEST_P(DecayAverageConformanceTest, SameBitsWithThreads) { ExpectSameBitsWithThreads(subject_); }
TEST_P(DecayAverageConformanceTest, SameBitsForFewerLogits) { ExpectSameBitsForFewerLogits(subject_); }
TEST_P(DecayAverageConformanceTest, ForksAreIndependent) { ExpectForksAreIndependent(subject_); }
TEST_P(DecayAverageConformanceTest, Causality) { ExpectCausality(subject_); }
TEST_P(DecayAverageConformanceTest, PredictedStateSize) { ExpectPredictedStateSize(subject_); }
TEST_P(DecayAverageConformanceTest, BadBatchesChangeNothing) { ExpectBadBatchesChangeNothing(subject_); }
TEST_P(DecayAverageConformanceTest, RestoredStatesGoOn) { ExpectRestoredStatesGoOn(subject_); }
TEST_P(DecayAverageConformanceTest, BadFieldsAreRefused) { ExpectBadFieldsAreRefused(subject_); }
TEST_P(DecayAverageConformanceTest, ForksShareUntilExtended) { ExpectForksShareUntilExtended(subject_); }

INSTANTIATE_TEST_SUITE_P(All, DecayAverageConformanceTest, ::testing::ValuesIn(Stacks()),
                         [](const auto& info) { return info.param.name; });

TEST(DecayAverage, BadFieldsAreNamed) {
  const absl::Status status =
      Stack("[consumer.decay_average] { channels: 0 longest_memory: nan }", "\"average\"").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("decay_average.channels: got 0"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("decay_average.longest_memory: got nan"));
}

TEST(DecayAverage, WithoutItsKindTheStackIsRefused) { EXPECT_FALSE(kvm::ValidateStack(Hybrid()).ok()); }

TEST(DecayAverage, NewChannelsRememberFromTwoTokensToTheLongest) {
  const kvm::StackSpec spec =
      Stack("[consumer.decay_average] { channels: 3 longest_memory: 200 }", "\"average\"").value();
  kvm::ExecutionContext context(1);
  const auto weights = kvm::InitializeWeights(spec, {}, context.pool, Kinds());
  std::vector<double> memories;
  for (const float decay : kvm::ReadFloats(*weights->Find("transformer.h.0.attn.decay"))) {
    memories.push_back(1 + std::exp(decay));
  }
  ASSERT_EQ(memories.size(), 3u);
  EXPECT_NEAR(memories[0], 2, 1e-5);
  EXPECT_NEAR(memories[1], 20, 1e-4);
  EXPECT_NEAR(memories[2], 200, 1e-3);
}

// Numbers by hand: one channel, one input.
TEST(DecayAverage, HalvesByHand) {
  const std::vector<float> two = {2}, zero = {0}, ten = {10};
  const std::string path = ::testing::TempDir() + "by_hand.safetensors";
  ASSERT_TRUE(kvm::WriteSafetensors(path, {{"value.weight", kvm::Tensor::FromFloats({1, 1}, two).view()},
                                           {"decay", kvm::Tensor::FromFloats({1}, zero).view()},  // σ(0) = 1/2
                                           {"output.weight", kvm::Tensor::FromFloats({1, 1}, ten).view()}})
                  .ok());
  const auto file = kvm::SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  kvm::StackSpec stack;
  stack.set_width(1);
  kvm::MixerSpec spec;
  spec.MutableExtension(decay_average);
  const auto mixer =
      NewDecayAverageMixer(spec, stack, kvm::LayerWeights(**file, "", kvm::WeightType::kF32), kvm::ModelOptions());
  const auto state = mixer->NewState();
  const std::vector<float> x = {1, 0, -2};
  std::vector<float> out(3);
  kvm::ExecutionContext context(1);
  mixer->Extend({x.data(), 3, 1}, {}, {{0, 3, 0, state.get()}}, {out.data(), 3, 1}, context);
  // Values 2, 0, −4; averages 1, 1/2, −7/4.
  EXPECT_EQ(out, (std::vector<float>{10, 5, -17.5}));
  EXPECT_EQ(kvm::ReadFloats(state->Export()[0].tensor.view()), (std::vector<float>{-1.75}));
}

std::vector<float> Extend(const kvm::LanguageModel& model, const std::vector<int32_t>& tokens,
                          kvm::SequenceState* sequence) {
  kvm::ExecutionContext context(2);
  std::vector<float> logits(static_cast<size_t>(model.vocab_size()));
  EXPECT_TRUE(model.Extend({{sequence, tokens, {logits.data(), 1, model.vocab_size()}}}, context).ok());
  return logits;
}

TEST(DecayAverage, IsLoadedFromACheckpointRunSavedAndRestored) {
  const kvm::StackSpec spec = Hybrid();
  const std::string folder = ::testing::TempDir(), weights_path = folder + "hybrid.safetensors";
  const auto weights = kvm::RandomWeights(spec, 1, Kinds());
  std::vector<kvm::NamedTensorView> tensors;
  for (const std::string& name : weights->Names()) tensors.push_back({name, *weights->Find(name)});
  ASSERT_TRUE(kvm::WriteSafetensors(weights_path, tensors).ok());

  const auto file = kvm::SafetensorsFile::Open(weights_path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto loaded = kvm::LanguageModel::Create(spec, **file, Options());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const kvm::LanguageModel& model = **loaded;
  kvm::Session session;
  session.tokens = kvm::TestTokens(spec, 40, 3);
  session.state = model.NewSequence();
  Extend(model, session.tokens, &session.state);

  kvm::ModelIdentity identity;
  identity.stack = "a hybrid";
  ASSERT_TRUE(kvm::WriteSnapshot(folder + "hybrid.kvmstate", session, identity).ok());
  auto restored = kvm::ReadSnapshot(folder + "hybrid.kvmstate", identity, model.NewSequence());
  ASSERT_TRUE(restored.ok()) << restored.status();
  const std::vector<int32_t> next = {7, 8, 9};
  EXPECT_EQ(Extend(model, next, &restored->state), Extend(model, next, &session.state));
}

TEST(DecayAverage, ACheckpointThatLacksATensorIsRefusedByName) {
  const kvm::StackSpec spec = Hybrid();
  const auto weights = kvm::RandomWeights(spec, 1, Kinds());
  std::vector<kvm::NamedTensorView> tensors;
  for (const std::string& name : weights->Names()) {
    if (name != "transformer.h.2.attn.decay") tensors.push_back({name, *weights->Find(name)});
  }
  const std::string path = ::testing::TempDir() + "lacking.safetensors";
  ASSERT_TRUE(kvm::WriteSafetensors(path, tensors).ok());
  const auto model = kvm::LanguageModel::Create(spec, **kvm::SafetensorsFile::Open(path), Options());
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("transformer.h.2.attn.decay"));
}

}  // namespace
}  // namespace consumer
