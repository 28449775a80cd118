// A kind of mixer that comes from elsewhere: an extension of MixerSpec and two records.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/model/engine/state_size.h"
#include "kvm/model/language_model.h"
#include "kvm/model/mixers/attention_mixer.h"
#include "kvm/model/mixers/cpu_mixers.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/canonical_stack.h"
#include "kvm/model/stack/foreign_mixer.pb.h"
#include "kvm/model/stack/kinds/kinds.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/initializer.h"
#include "kvm/model/weights/parameters.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

// The attention that a glance stands for.
MixerSpec AsAttention(const MixerSpec& mixer) {
  const foreign::GlanceSpec& glance = mixer.GetExtension(foreign::glance);
  MixerSpec attention;
  attention.set_name(mixer.name());
  attention.mutable_attention()->mutable_projections()->set_num_heads(glance.num_heads());
  attention.mutable_attention()->mutable_projections()->set_rotary_dim(8);
  attention.mutable_attention()->set_window(glance.window());
  return attention;
}

const MixerKind& GlanceKind() {
  static const MixerKind kind = [] {
    MixerKind made;
    made.name = "glance";
    made.field_number = foreign::kGlanceFieldNumber;
    made.check = [](const MixerSpec& mixer, int64_t width, const std::string& path, StackChecker* check) {
      const foreign::GlanceSpec& spec = mixer.GetExtension(foreign::glance);
      check->Whole(path + ".num_heads", spec.num_heads(), 1, width);
      check->Whole(path + ".window", spec.window(), 1);
    };
    made.value_width = [](const MixerSpec& mixer, int64_t width) {
      return AttentionKind().value_width(AsAttention(mixer), width);
    };
    made.append_parameters = [](const MixerSpec& mixer, const LayerPlace& place, const std::string& prefix,
                                std::vector<Parameter>* parameters) {
      AttentionKind().append_parameters(AsAttention(mixer), place, prefix, parameters);
    };
    made.state_size = [](const MixerSpec& mixer, int64_t width, const StateQuery& query) {
      return AttentionKind().state_size(AsAttention(mixer), width, query);
    };
    made.token_cost = [](const MixerSpec& mixer, int64_t width, DType dtype, int64_t position) {
      return AttentionKind().token_cost(AsAttention(mixer), width, dtype, position);
    };
    made.describe = [](const MixerSpec&, int64_t) { return std::string("a glance"); };
    made.has_value_residual = [](const MixerSpec&) { return true; };
    return made;
  }();
  return kind;
}

std::unique_ptr<Mixer> NewGlance(const MixerSpec& mixer, const StackSpec& stack, const LayerWeights& weights,
                                 const ModelOptions& options) {
  return NewAttentionMixer(AsAttention(mixer).attention(), stack.width(), stack.rotary_table(), weights, options.state);
}

const MixerKinds& Kinds() {
  static const MixerKinds& kinds = *new MixerKinds(BuiltinMixerKinds().With(GlanceKind()));
  return kinds;
}

StackSpec Stack(const std::string& mixer) {
  const absl::StatusOr<StackSpec> spec =
      ParseStackSpec("vocab_size: 64 width: 32 mlp_expansion: 1 mixers { name: \"m\" " + mixer +
                         " } mixers { name: \"r\" rwkv7 { num_heads: 2 } } layers: [\"m\", \"r\", \"m\"]",
                     "spec", Kinds());
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.value_or(StackSpec());
}

constexpr char kGlance[] = "[kvm.foreign.glance] { num_heads: 2 window: 3 }";

std::string ErrorOf(const std::string& mixer, const MixerKinds& kinds) {
  const std::string text = "width: 32 mixers { name: \"m\" " + mixer + " } layers: \"m\"";
  return std::string(ParseStackSpec(text, "spec", kinds).status().message());
}

TEST(ForeignMixer, IsReadFromTextAndChecked) {
  EXPECT_EQ(Stack(kGlance).mixers(0).GetExtension(foreign::glance).window(), 3);
  EXPECT_EQ(ErrorOf("[kvm.foreign.glance] { window: 0 }", Kinds()),
            "spec: mixers[0].glance.window: got 0, expected a whole number from 1 to 16777216");
}

TEST(ForeignMixer, IsNoKindUnlessListed) {
  EXPECT_EQ(ErrorOf(kGlance, BuiltinMixerKinds()),
            "spec: mixers[0]: got no kind, expected one of attention, kvm, rwkv7, block_window, ovq, gated_delta_net, "
            "kimi_delta");
  EXPECT_THAT(ErrorOf("", Kinds()), HasSubstr("kimi_delta, glance"));
}

TEST(ForeignMixer, StandsBesideNoOtherKind) {
  const std::string both = std::string(kGlance) + " rwkv7 { num_heads: 2 }";
  for (const MixerKinds& kinds : {Kinds(), BuiltinMixerKinds()}) {
    EXPECT_EQ(ErrorOf(both, kinds), "spec: mixers[0]: got rwkv7 and glance, expected one kind");
  }
}

TEST(ForeignMixer, HasOneCanonicalForm) {
  const StackSpec defaults = Stack("[kvm.foreign.glance] {}");
  const StackSpec canonical = CanonicalStack(defaults, Kinds());
  EXPECT_TRUE(canonical.mixers(0).HasExtension(foreign::glance));
  const StackSpec said = Stack("[kvm.foreign.glance] { num_heads: 2 window: 4 }");
  EXPECT_EQ(FormatStackSpec(CanonicalStack(said, Kinds())), FormatStackSpec(canonical));
  EXPECT_NE(FormatStackSpec(CanonicalStack(Stack(kGlance), Kinds())), FormatStackSpec(canonical));
}

std::vector<float> Logits(const StackSpec& spec, const ModelOptions& options) {
  ExecutionContext context(1);
  InitializerOptions initializer;
  initializer.block_output_gain = 1;
  ThreadPool pool(1);
  const std::unique_ptr<WeightSource> weights = InitializeWeights(spec, initializer, pool, Kinds());
  const absl::StatusOr<std::unique_ptr<LanguageModel>> model = LanguageModel::Create(spec, *weights, options);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  SequenceState sequence = (*model)->NewSequence();
  const std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6};
  std::vector<float> logits(tokens.size() * 64);
  const absl::Status status = (*model)->Extend({{&sequence, tokens, MatrixView<float>(logits.data(), 8, 64)}}, context);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(sequence.ByteSize(), SequenceStateSize(spec, options.state, 8, false, Kinds()).bytes);
  return logits;
}

TEST(ForeignMixer, RunsAsAnyOther) {
  const CpuMixers mixers = BuiltinCpuMixers().With({&GlanceKind(), NewGlance});
  ModelOptions options;
  options.kinds = &Kinds();
  options.cpu_mixers = &mixers;
  EXPECT_EQ(Logits(Stack(kGlance), options),
            Logits(Stack("attention { projections { num_heads: 2 rotary_dim: 8 } window: 3 }"), ModelOptions()));
}

TEST(ForeignMixer, WithoutArithmeticIsRefusedByName) {
  const StackSpec spec = Stack(kGlance);
  ThreadPool pool(1);
  const std::unique_ptr<WeightSource> weights = InitializeWeights(spec, {}, pool, Kinds());
  ModelOptions options;
  options.kinds = &Kinds();
  const absl::Status status = LanguageModel::Create(spec, *weights, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("mixer \"m\" is of a kind that the CPU does not compute"));
}

TEST(MixerKindsDeathTest, NamesAndNumbersAreDistinct) {
  EXPECT_DEATH(Kinds().With(GlanceKind()), "expected mixer kinds of different names and field numbers");
  EXPECT_DEATH(BuiltinMixerKinds().With(MixerKind()), "expected a mixer kind with everything that each kind has");
}

TEST(MixerKindsDeathTest, OnlyListedKindsAreLookedUp) {
  const StackSpec spec = Stack(kGlance);
  EXPECT_DEATH(BuiltinMixerKinds().Of(spec.mixers(0)), "expected a mixer of one of the given kinds");
}

}  // namespace
}  // namespace kvm
