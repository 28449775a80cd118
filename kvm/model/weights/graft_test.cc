#include "kvm/model/weights/graft.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/kernels/tensor.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/initializer.h"
#include "kvm/model/weights/parameters.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StackSpec Spec(const std::string& text) {
  const absl::StatusOr<StackSpec> spec = ParseStackSpec(text, "spec");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : StackSpec();
}

constexpr char kBackbone[] = "vocab_size: 40 width: 32 mlp_expansion: 2 ";
constexpr char kRwkv[] = "mixers { name: \"r\" rwkv7 { num_heads: 2 } } ";
constexpr char kKvm[] =
    "mixers { name: \"k\" kvm { projections { num_heads: 2 rotary_dim: 8 } chunk_len: 8 budget { min_rows: 8 } } } ";

StackSpec RwkvStack() { return Spec(absl::StrCat(kBackbone, kRwkv, "layers: [\"r\", \"r\", \"r\"]")); }
StackSpec KvmStack() { return Spec(absl::StrCat(kBackbone, kKvm, "layers: [\"k\", \"k\", \"k\"]")); }
StackSpec Hybrid() { return Spec(absl::StrCat(kBackbone, kRwkv, kKvm, "layers: [\"r\", \"k\", \"r\"]")); }

// A checkpoint with weights that are its own everywhere.
struct Checkpoint {
  Checkpoint(const std::string& name, const StackSpec& spec, uint64_t seed) : name(name), spec(spec) {
    ThreadPool pool(1);
    InitializerOptions options;
    options.seed = seed;
    options.block_output_gain = 1;
    const std::unique_ptr<WeightSource> drawn = InitializeWeights(spec, options, pool);
    auto map = std::make_unique<Map>();
    // Norms and the like begin the same in every new model: told apart by the seed.
    for (const std::string& tensor : drawn->Names()) {
      std::vector<float> values = ReadFloats(*drawn->Find(tensor));
      for (float& value : values) value += static_cast<float>(seed);
      map->tensors[tensor] = Tensor::FromFloats(drawn->Find(tensor)->shape, values);
      map->views[tensor] = map->tensors[tensor].view();
    }
    weights = std::move(map);
  }

  GraftSource source() const { return {name, &spec, weights.get()}; }

  struct Map : WeightSource {
    std::string Description() const override { return "checkpoint"; }
    std::vector<std::string> Names() const override {
      std::vector<std::string> names;
      for (const auto& entry : views) names.push_back(entry.first);
      return names;
    }
    const TensorView* Find(absl::string_view tensor) const override {
      const auto found = views.find(tensor);
      return found == views.end() ? nullptr : &found->second;
    }
    std::map<std::string, Tensor> tensors;
    std::map<std::string, TensorView, std::less<>> views;
  };

  std::string name;
  StackSpec spec;
  std::unique_ptr<WeightSource> weights;
};

StackPart Part(const std::string& text) {
  const absl::StatusOr<StackPart> part = ParseStackPart(text);
  EXPECT_TRUE(part.ok()) << part.status();
  return part.ok() ? *part : StackPart();
}

std::string Refusal(const StackSpec& spec, const std::vector<Graft>& grafts) {
  const absl::StatusOr<GraftPlan> plan = PlanGrafts(spec, grafts);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(plan.status().message());
}

TEST(ParseStackPart, ReadsEveryForm) {
  EXPECT_EQ(Part("all").kind, StackPart::Kind::kAll);
  EXPECT_EQ(Part("embedding").kind, StackPart::Kind::kEmbedding);
  EXPECT_EQ(Part("head").kind, StackPart::Kind::kHead);
  EXPECT_EQ(Part("0-2,7").kind, StackPart::Kind::kLayers);
  EXPECT_THAT(Part("0-2,7").layers, ElementsAre(0, 1, 2, 7));
  EXPECT_THAT(Part("7,1-2,2").layers, ElementsAre(1, 2, 7));
  EXPECT_EQ(Part("mixer:3").kind, StackPart::Kind::kMixers);
  EXPECT_EQ(Part("mlp:3").kind, StackPart::Kind::kMlps);
  for (const char* bad : {"", "heads", "3-1", "-1", "1-", "1,,2", "1-2-3", "x", "mixer:", "mixer:all", "9999", "1 2"}) {
    const absl::StatusOr<StackPart> part = ParseStackPart(bad);
    EXPECT_EQ(part.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(part.status().message()), HasSubstr("expected all, embedding, head, or layers")) << bad;
  }
}

TEST(GraftWeights, EveryTensorHasItsOrigin) {
  const Checkpoint rwkv("rwkv", RwkvStack(), 100), kvm("kvm", KvmStack(), 200), fresh("fresh", Hybrid(), 300);
  const std::vector<Graft> grafts = {{Part("embedding"), rwkv.source()},
                                     {Part("0,2"), rwkv.source()},
                                     {Part("mlp:1"), rwkv.source()},
                                     {Part("mixer:1"), kvm.source()},
                                     {Part("mlp:2"), kvm.source()}};
  const absl::StatusOr<GraftPlan> plan = PlanGrafts(Hybrid(), grafts);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::unique_ptr<WeightSource> weights = GraftWeights(Hybrid(), *plan, *fresh.weights);
  ASSERT_TRUE(CheckWeights(Hybrid(), *weights).ok()) << CheckWeights(Hybrid(), *weights);
  const auto expect_from = [&](const std::string& name, const Checkpoint& origin) {
    EXPECT_EQ(ReadFloats(*weights->Find(name)), ReadFloats(*origin.weights->Find(name))) << name;
    EXPECT_EQ(weights->Info(name)->shape, origin.weights->Info(name)->shape) << name;
  };
  expect_from("transformer.wte.weight", rwkv);
  expect_from("transformer.ln_emb.bias", rwkv);
  expect_from("transformer.h.0.attn.key.weight", rwkv);
  expect_from("transformer.h.0.ln_attn.weight", rwkv);
  expect_from("transformer.h.1.attn.c_q.weight", kvm);
  expect_from("transformer.h.1.ln_attn.weight", rwkv);
  expect_from("transformer.h.1.mlp.c_fc.weight", rwkv);
  expect_from("transformer.h.2.attn.key.weight", rwkv);
  expect_from("transformer.h.2.ln_attn.weight", kvm);
  expect_from("transformer.h.2.mlp.c_proj.weight", kvm);
  expect_from("transformer.ln_head.weight", fresh);
  expect_from("lm_head.weight", fresh);

  std::vector<std::string> lines;
  for (const GraftLine& line : DescribeGrafts(Hybrid(), *plan, "new")) {
    lines.push_back(absl::StrCat(line.part, ": ", line.origin));
  }
  EXPECT_THAT(lines, ElementsAre("embedding: rwkv", "layer 0: rwkv", "layer 1: kvm (mixer), rwkv (norms and MLP)",
                                 "layer 2: rwkv (mixer), kvm (norms and MLP)", "head: new"));
}

TEST(GraftWeights, ATiedHeadComesFromTheEmbedding) {
  StackSpec tied = RwkvStack();
  tied.set_tied_head(true);
  const Checkpoint source("tied", tied, 100);
  const absl::StatusOr<GraftPlan> plan = PlanGrafts(RwkvStack(), {{Part("all"), source.source()}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->origins.at("lm_head.weight").name, "transformer.wte.weight");
  EXPECT_EQ(plan->origins.size(), StackParameters(RwkvStack()).size());
}

TEST(PlanGrafts, ListsWhatDoesNotFit) {
  const Checkpoint kvm("kvm", KvmStack(), 200);
  EXPECT_THAT(Refusal(RwkvStack(), {{Part("1-2"), kvm.source()}}),
              HasSubstr("kvm: layers 1-2: its mixer is kvm, the stack's rwkv7"));
  EXPECT_THAT(Refusal(KvmStack(), {{Part("2-3"), kvm.source()}}), HasSubstr("kvm: layer 3: the stack has 3 layers"));
  StackSpec four = KvmStack();
  four.add_layers("k");
  EXPECT_THAT(Refusal(four, {{Part("3"), kvm.source()}}), HasSubstr("kvm: layer 3: it has 3 layers"));
  EXPECT_THAT(Refusal(four, {{Part("all"), kvm.source()}}), HasSubstr("kvm: layer 3: it has 3 layers"));
  StackSpec wide = KvmStack();
  wide.set_vocab_size(41);
  EXPECT_THAT(Refusal(wide, {{Part("embedding"), kvm.source()}}),
              HasSubstr("kvm: transformer.wte.weight: has shape [40, 32], expected [41, 32]"));
  wide = KvmStack();
  wide.set_mlp_expansion(3);
  wide.set_mlp_token_shift(true);
  const std::string refusal = Refusal(wide, {{Part("mlp:0"), kvm.source()}});
  EXPECT_THAT(refusal, HasSubstr("h.0.mlp.x_k: missing, expected shape [1, 1, 32]; "));
  EXPECT_THAT(refusal, HasSubstr("h.0.mlp.c_fc.weight: has shape [64, 32], expected [96, 32]"));
  EXPECT_THAT(Refusal(wide, {{Part("mlp:0-2"), kvm.source()}}),
              HasSubstr("kvm: transformer.h.{0..2}.mlp.x_k: missing, expected shape [1, 1, 32]; "));
}

// Layers without mixer leave it to a later graft, whatever kind of part they are in.
TEST(PlanGrafts, MixersThatAreNotMeantMayBeOfAnyKind) {
  const Checkpoint rwkv("rwkv", RwkvStack(), 100), kvm("kvm", KvmStack(), 200);
  for (const char* earlier : {"all", "0-2", "mixer:0-2"}) {
    StackPart part = Part(earlier);
    part.without_mixer = {0, 1, 2};
    const absl::StatusOr<GraftPlan> plan =
        PlanGrafts(KvmStack(), {{part, rwkv.source()}, {Part("mixer:0-2"), kvm.source()}});
    ASSERT_TRUE(plan.ok()) << earlier << ": " << plan.status();
    EXPECT_EQ(plan->origins.at("transformer.h.1.attn.c_q.weight").source, 1) << earlier;
  }
}

TEST(ReplaceMixers, AddsNamesAndDropsMixers) {
  StackSpec spec = RwkvStack();
  MixerSpec kvm = KvmStack().mixers(0);
  ASSERT_TRUE(ReplaceMixers({1}, kvm, &spec).ok());
  EXPECT_THAT(spec.layers(), ElementsAre("r", "k", "r"));
  EXPECT_EQ(spec.mixers_size(), 2);
  // The same again is the same mixer; another one with its name gets a name of its own.
  ASSERT_TRUE(ReplaceMixers({2}, kvm, &spec).ok());
  EXPECT_THAT(spec.layers(), ElementsAre("r", "k", "k"));
  kvm.mutable_kvm()->set_num_sinks(2);
  ASSERT_TRUE(ReplaceMixers({0}, kvm, &spec).ok());
  EXPECT_THAT(spec.layers(), ElementsAre("k2", "k", "k"));
  EXPECT_EQ(spec.mixers_size(), 2);
  EXPECT_EQ(ReplaceMixers({3}, kvm, &spec).code(), absl::StatusCode::kInvalidArgument);
  kvm.mutable_kvm()->set_chunk_len(0);
  EXPECT_THAT(std::string(ReplaceMixers({0}, kvm, &spec).message()), HasSubstr("chunk_len"));
}

TEST(AdoptMixers, TakesThoseOfTheSource) {
  StackSpec spec = RwkvStack();
  ASSERT_TRUE(AdoptMixers({0, 2}, KvmStack(), "kvm", &spec).ok());
  EXPECT_THAT(spec.layers(), ElementsAre("k", "r", "k"));
  EXPECT_THAT(std::string(AdoptMixers({3}, KvmStack(), "kvm", &spec).message()), HasSubstr("kvm: layer 3: it has 3"));
  StackSpec anchored = Hybrid();
  anchored.mutable_mixers(1)->set_value_anchor("r");
  EXPECT_THAT(std::string(AdoptMixers({1}, anchored, "a", &spec).message()), HasSubstr("value anchor of r"));
  // With all layers the anchor comes along.
  const absl::Status all = AdoptMixers({0, 1, 2}, anchored, "a", &spec);
  EXPECT_TRUE(all.ok()) << all;
  EXPECT_THAT(spec.layers(), ElementsAre("r", "k", "r"));
  EXPECT_EQ(spec.mixers(1).value_anchor(), "r");
  EXPECT_EQ(spec.width(), 32);
  EXPECT_THAT(std::string(AdoptMixers({0, 3, 4}, anchored, "a", &spec).message()),
              HasSubstr("a: layers 3-4: it has 3 layers"));
}

}  // namespace
}  // namespace kvm
