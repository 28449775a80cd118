// What is refused of a stack as a whole, with which path, value and range; mixer_problems_test.cc has the mixers.

#include "kvm/model/stack/stack_problems.h"

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/model/stack/stack_problems_testing.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kFromOne[] = "a whole number from 1 to 16777216";
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

constexpr char kStack[] = R"(
  vocab_size: 64
  width: 32
  mixers { name: "a" rwkv7 { num_heads: 2 } }
  mixers { name: "b" attention { projections { num_heads: 2 rotary_dim: 8 v_head_dim: 8 } } }
  mixers { name: "c" attention { projections { num_heads: 2 rotary_dim: 8 v_head_dim: 8 } } }
  layers: ["a", "b", "c", "b"])";

// The problems of that stack with a change.
std::vector<StackProblem> Problems(const std::function<void(StackSpec&)>& change) {
  absl::StatusOr<StackSpec> spec = ParseStackSpec(kStack, "stack");
  EXPECT_TRUE(spec.ok()) << spec.status();
  if (!spec.ok()) return {};
  change(*spec);
  return FindStackProblems(*spec);
}

TEST(FindStackProblems, Sizes) {
  EXPECT_THAT(Problems([](StackSpec&) {}), IsEmpty());
  for (const int size : {0, -1, (1 << 24) + 1}) {
    EXPECT_THAT(Problems([&](StackSpec& s) { s.set_vocab_size(size); }),
                ElementsAre(StackProblem{"vocab_size", std::to_string(size), kFromOne}));
    EXPECT_THAT(Problems([&](StackSpec& s) { s.set_width(size); }),
                Contains(StackProblem{"width", std::to_string(size), kFromOne}));
  }
}

TEST(FindStackProblems, Layers) {
  const std::string known = "the name of a mixer: \"a\", \"b\", \"c\"";
  EXPECT_THAT(Problems([](StackSpec& s) { s.clear_layers(); }),
              ElementsAre(StackProblem{"layers", "0 layers", "1 to 4096 layers"}));
  EXPECT_THAT(Problems([](StackSpec& s) {
                for (int i = 0; i < 4093; ++i) s.add_layers("b");
              }),
              ElementsAre(StackProblem{"layers", "4097 layers", "1 to 4096 layers"}));
  EXPECT_THAT(Problems([](StackSpec& s) { s.set_layers(2, "d"); }),
              ElementsAre(StackProblem{"layers[2]", "\"d\"", known}));
  EXPECT_THAT(Problems([](StackSpec& s) { s.clear_mixers(); }),
              Contains(StackProblem{"layers[3]", "\"b\"", "the name of a mixer, of which there are none"}));
}

// Each layer's mistake is told, the mixers that there are once.
TEST(FindStackProblems, ListsTheMixersOnce) {
  EXPECT_THAT(Problems([](StackSpec& s) {
                s.set_layers(1, "d");
                s.set_layers(2, "e");
              }),
              ElementsAre(StackProblem{"layers[1]", "\"d\"", "the name of a mixer: \"a\", \"b\", \"c\""},
                          StackProblem{"layers[2]", "\"e\"", "the name of a mixer"}));
}

TEST(FindStackProblems, NamesAHundredAndCountsTheRest) {
  StackSpec spec;
  for (int i = 0; i < 150; ++i) spec.add_mixers()->mutable_rwkv7()->set_num_heads(1);
  for (int i = 0; i < 3; ++i) spec.add_layers("a");
  size_t count = 0;
  EXPECT_EQ(FindStackProblems(spec, &count).size(), 100u);
  EXPECT_EQ(count, 153u);
  EXPECT_THAT(std::string(ValidateStack(spec).message()), ::testing::EndsWith("expected a name; and 53 more"));
}

TEST(FindStackProblems, Names) {
  EXPECT_THAT(Problems([](StackSpec& s) { s.mutable_mixers(0)->clear_name(); }),
              Contains(StackProblem{"mixers[0].name", "nothing", "a name"}));
  EXPECT_THAT(Problems([](StackSpec& s) { s.mutable_mixers(2)->set_name("b"); }),
              Contains(StackProblem{"mixers[2].name", "\"b\"", "a name that no other mixer has"}));
}

TEST(FindStackProblems, ValueAnchors) {
  const auto anchored = [](const std::string& anchor, const std::string& last_layers) {
    return Problems([&](StackSpec& s) {
      s.mutable_mixers(1)->set_value_anchor(anchor);
      s.set_layers(2, last_layers);
    });
  };
  const std::string path = "mixers[1].value_anchor";
  EXPECT_THAT(anchored("c", "c"), IsEmpty());
  EXPECT_THAT(anchored("d", "c"), ElementsAre(StackProblem{path, "\"d\"", "the name of a mixer: \"a\", \"b\", \"c\""}));
  EXPECT_THAT(anchored("c", "b"), ElementsAre(StackProblem{path, "\"c\"", "a mixer that a layer uses"}));
  EXPECT_THAT(anchored("a", "c"),
              ElementsAre(StackProblem{path, "\"a\" with values of 32 channels",
                                       "a mixer whose values have 16 channels, as those of \"b\""}));
}

TEST(FindStackProblems, Mlp) {
  const std::string number = "a number above 0 and at most 16777216";
  const std::string wide = "a number that makes the MLP 32 to 16777216 wide; the stack's width is 32";
  const std::vector<StackProblem> problems = {
      {"mlp_expansion", "0", number},      {"mlp_expansion", "-4", number}, {"mlp_expansion", "nan", number},
      {"mlp_expansion", "1e+300", number}, {"mlp_expansion", "0.9", wide},  {"mlp_expansion", "1e+06", wide},
  };
  const double values[] = {0, -4, kNan, 1e300, 0.9, 1e6};
  for (size_t i = 0; i < problems.size(); ++i) {
    EXPECT_THAT(Problems([&](StackSpec& s) { s.set_mlp_expansion(values[i]); }), ElementsAre(problems[i]));
  }
  EXPECT_THAT(Problems([](StackSpec& s) { s.set_mlp_expansion(1); }), IsEmpty());
}

TEST(FindStackProblems, Scales) {
  const std::string any = "a number from -1000000 to 1000000", cap = "0 (off) or a number from 0.000001 to 1000000";
  const std::pair<double, std::string> beyond[] = {
      {kInfinity, "inf"}, {-kInfinity, "-inf"}, {kNan, "nan"}, {1.1e6, "1.1e+06"}, {-1.1e6, "-1.1e+06"}};
  for (const auto& [value, got] : beyond) {
    EXPECT_THAT(Problems([v = value](StackSpec& s) { s.set_residual_scale(v); }),
                ElementsAre(StackProblem{"residual_scale", got, any}));
    EXPECT_THAT(Problems([v = value](StackSpec& s) { s.set_logit_softcap(v); }),
                ElementsAre(StackProblem{"logit_softcap", got, cap}));
  }
  EXPECT_THAT(Problems([](StackSpec& s) { s.set_logit_softcap(-1); }),
              ElementsAre(StackProblem{"logit_softcap", "-1", cap}));
  EXPECT_THAT(Problems([](StackSpec& s) { s.set_logit_softcap(1e-7); }),
              ElementsAre(StackProblem{"logit_softcap", "1e-07", cap}));
}

TEST(FindStackProblems, SkipConnectionsOfOddStacks) {
  EXPECT_THAT(Problems([](StackSpec& s) { s.set_skip_connections(true); }), IsEmpty());
  EXPECT_THAT(Problems([](StackSpec& s) {
                s.set_skip_connections(true);
                s.add_layers("b");
              }),
              ElementsAre(StackProblem{"skip_connections", "true", "an even number of layers, not 5"}));
}

TEST(FindStackProblems, StacksOfImplausibleSize) {
  const std::vector<StackProblem> problems = Problems([](StackSpec& s) {
    s.set_vocab_size(1 << 24);
    s.set_width(1 << 22);
  });
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].path, "layers");
  EXPECT_EQ(problems[0].expected, "at most 1099511627776 parameters");
}

TEST(FindStackProblems, AreInTheOrderOfTheFile) {
  const std::vector<StackProblem> problems = Problems([](StackSpec& s) {
    s.set_logit_softcap(-1);
    s.set_layers(2, "d");
    s.mutable_mixers(1)->mutable_attention()->set_window(-3);
    s.set_vocab_size(0);
  });
  std::vector<std::string> paths;
  for (const StackProblem& problem : problems) paths.push_back(problem.path);
  EXPECT_THAT(paths, ElementsAre("vocab_size", "mixers[1].attention.window", "layers[2]", "logit_softcap"));
}

}  // namespace
}  // namespace kvm
