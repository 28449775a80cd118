// What is refused of a mixer, with which path, value and range: a table for every kind.

#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "kvm/model/stack/stack_problems.h"
#include "kvm/model/stack/stack_problems_testing.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kFromZero[] = "a whole number from 0 to 16777216";
constexpr char kFromOne[] = "a whole number from 1 to 16777216";

// The problems of a stack of width 32 with one layer of a mixer. Of fields that are named twice the last counts.
std::vector<StackProblem> Problems(const std::string& mixer) {
  StackSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(
      absl::StrCat("vocab_size: 64 width: 32 layers: \"m\" mixers { name: \"m\" ", mixer, " }"), &spec))
      << mixer;
  return FindStackProblems(spec);
}

// A field with a bad value.
struct BadField {
  std::string text;
  StackProblem problem;  // its path below the kind's
};

// `kind` with each of the bad fields behind the sound ones has that problem and no other.
void ExpectRefusals(const std::string& kind, const std::string& sound, const std::vector<BadField>& fields) {
  const auto problems = [&](const std::string& text) { return Problems(absl::StrCat(kind, " { ", text, " }")); };
  EXPECT_THAT(problems(sound), IsEmpty()) << kind;
  for (const BadField& field : fields) {
    const StackProblem expected = {absl::StrCat("mixers[0].", kind, ".", field.problem.path), field.problem.got,
                                   field.problem.expected};
    EXPECT_THAT(problems(absl::StrCat(sound, " ", field.text)), ElementsAre(expected)) << kind << " " << field.text;
  }
}

struct Projected {
  std::string kind, more;
};

// The kinds that begin with projections; OVQ has rules of its own for them.
std::vector<Projected> ProjectedKinds() {
  return {{"attention", ""}, {"kvm", "chunk_len: 8"}, {"block_window", "chunk_len: 8"}};
}

TEST(MixerProblems, Projections) {
  std::vector<BadField> fields = {
      {"num_heads: 0", {"num_heads", "0", kFromOne}},
      {"num_heads: -2", {"num_heads", "-2", kFromOne}},
      {"num_heads: 16777217", {"num_heads", "16777217", kFromOne}},
      {"num_heads: 5", {"num_heads", "5", "a divisor of the width (32) unless head sizes are given"}},
      {"num_heads: 5 qk_head_dim: 8", {"num_heads", "5", "a divisor of the width (32) unless head sizes are given"}},
      {"num_heads: 5 v_head_dim: 8", {"num_heads", "5", "a divisor of the width (32) unless head sizes are given"}},
      {"num_kv_heads: 0", {"num_kv_heads", "0", kFromOne}},
      {"num_kv_heads: -1", {"num_kv_heads", "-1", kFromOne}},
      {"num_kv_heads: 3", {"num_kv_heads", "3", "a divisor of the number of heads (4)"}},
      {"num_kv_heads: 8", {"num_kv_heads", "8", "a divisor of the number of heads (4)"}},
      {"qk_head_dim: 0", {"qk_head_dim", "0", kFromOne}},
      {"qk_head_dim: -8", {"qk_head_dim", "-8", kFromOne}},
      {"qk_head_dim: 16777216", {"qk_head_dim times num_heads", "67108864", kFromOne}},
      {"v_head_dim: 0", {"v_head_dim", "0", kFromOne}},
      {"v_head_dim: -8", {"v_head_dim", "-8", kFromOne}},
      {"v_head_dim: 16777216", {"v_head_dim times num_heads", "67108864", kFromOne}},
      {"rotary_dim: 10", {"rotary_dim", "10", "at most the 8 channels of a head"}},
      {"rotary_dim: 8 qk_head_dim: 6", {"rotary_dim", "8", "at most the 6 channels of a head"}},
      {"rotary_dim: 3", {"rotary_dim", "3", "an even number"}},
      {"rotary_dim: -2", {"rotary_dim", "-2", kFromZero}},
      {"rotary_theta: 0", {"rotary_theta", "0", "a number from 0.000001 to 1e30"}},
      {"rotary_theta: -1e4", {"rotary_theta", "-10000", "a number from 0.000001 to 1e30"}},
      {"rotary_theta: inf", {"rotary_theta", "inf", "a number from 0.000001 to 1e30"}},
      {"rotary_theta: nan", {"rotary_theta", "nan", "a number from 0.000001 to 1e30"}},
      {"value_gate_rank: 0", {"value_gate_rank", "0", kFromOne}},
      {"value_gate_rank: -32", {"value_gate_rank", "-32", kFromOne}},
  };
  for (BadField& field : fields) {
    field.text = absl::StrCat("projections { ", field.text, " }");
    field.problem.path = absl::StrCat("projections.", field.problem.path);
  }
  for (const Projected& kind : ProjectedKinds()) {
    ExpectRefusals(kind.kind, absl::StrCat("projections { num_heads: 4 rotary_dim: 4 } ", kind.more), fields);
  }
}

TEST(MixerProblems, MissingProjectionsHaveNoHeads) {
  for (const Projected& kind : ProjectedKinds()) {
    EXPECT_THAT(Problems(absl::StrCat(kind.kind, " { }")),
                Contains(StackProblem{absl::StrCat("mixers[0].", kind.kind, ".projections.num_heads"), "0", kFromOne}));
  }
  EXPECT_THAT(Problems("ovq { }"), ElementsAre(StackProblem{"mixers[0].ovq.projections.num_heads", "0", kFromOne}));
}

TEST(MixerProblems, RotaryInAllChannels) {
  const std::string projections = "{ projections { num_heads: 4 rotary_dim: 8 } }";
  EXPECT_THAT(Problems("attention " + projections), IsEmpty());
  EXPECT_THAT(Problems("block_window " + projections), IsEmpty());
  EXPECT_THAT(Problems("kvm " + projections),
              ElementsAre(StackProblem{"mixers[0].kvm.projections.rotary_dim", "8",
                                       "less than the 8 channels of a head, as state keys hold only channels without "
                                       "rotary embedding"}));
}

TEST(MixerProblems, Attention) {
  ExpectRefusals("attention", "projections { num_heads: 4 rotary_dim: 4 }",
                 {{"window: 0", {"window", "0", kFromOne}}, {"window: -5", {"window", "-5", kFromOne}}});
}

TEST(MixerProblems, BlockWindow) {
  ExpectRefusals("block_window", "projections { num_heads: 4 rotary_dim: 4 } chunk_len: 8 num_sinks: 100",
                 {{"chunk_len: 0", {"chunk_len", "0", kFromOne}},
                  {"chunk_len: -8", {"chunk_len", "-8", kFromOne}},
                  {"window_chunks: 0", {"window_chunks", "0", kFromOne}},
                  {"window_chunks: -1", {"window_chunks", "-1", kFromOne}},
                  {"num_sinks: -1", {"num_sinks", "-1", kFromZero}}});
}

constexpr char kSoundKvm[] = "projections { num_heads: 4 num_kv_heads: 2 rotary_dim: 4 } chunk_len: 8";

TEST(MixerProblems, Kvm) {
  const std::string fraction = "a number from 0 to 1";
  ExpectRefusals("kvm", kSoundKvm,
                 {{"chunk_len: 0", {"chunk_len", "0", kFromOne}},
                  {"chunk_len: -8", {"chunk_len", "-8", kFromOne}},
                  {"window_chunks: 0", {"window_chunks", "0", kFromOne}},
                  {"window_chunks: -1", {"window_chunks", "-1", kFromOne}},
                  {"num_sinks: -1", {"num_sinks", "-1", kFromZero}},
                  {"num_sinks: 9", {"num_sinks", "9", "at most chunk_len (8)"}},
                  {"second_merge: -0.1", {"second_merge", "-0.1", fraction}},
                  {"second_merge: 1.1", {"second_merge", "1.1", fraction}},
                  {"second_merge: nan", {"second_merge", "nan", fraction}},
                  {"second_merge: 0.5 use_radius: false", {"second_merge", "0.5", "0, as use_radius is false"}},
                  {"merge_decay: -1", {"merge_decay", "-1", fraction}},
                  {"merge_decay: 1.1", {"merge_decay", "1.1", fraction}},
                  {"merge_decay: nan", {"merge_decay", "nan", fraction}},
                  {"merge_decay: 0.5 use_radius: false", {"merge_decay", "0.5", "1, as use_radius is false"}}});
}

TEST(MixerProblems, KvmBudgets) {
  const std::string factor = "a number above 0 and at most 1e+06", limit = "a number above 0 and at most 1e+12";
  const std::string power_law = "growth: POWER_LAW ", saturation = "growth: SATURATION ";
  const std::vector<BadField> fields = {
      {power_law + "factor: 0", {"factor", "0", factor}},
      {power_law + "factor: -2", {"factor", "-2", factor}},
      {power_law + "factor: 1e7", {"factor", "1e+07", factor}},
      {power_law + "factor: nan", {"factor", "nan", factor}},
      {power_law + "exponent: -0.5", {"exponent", "-0.5", "a number from 0 to 1"}},
      {power_law + "exponent: 1.5", {"exponent", "1.5", "a number from 0 to 1"}},
      {power_law + "exponent: nan", {"exponent", "nan", "a number from 0 to 1"}},
      {saturation, {"limit", "0", limit}},  // it has no default
      {saturation + "limit: -24", {"limit", "-24", limit}},
      {saturation + "limit: inf", {"limit", "inf", limit}},
      {"round_down: 0", {"round_down", "0", kFromOne}},
      {"round_down: -8", {"round_down", "-8", kFromOne}},
      {"min_rows: -2", {"min_rows", "-2", "a whole number from -1 to 16777216"}},
      {"max_chunks: 0", {"max_chunks", "0", kFromOne}},
      {"max_chunks: -1", {"max_chunks", "-1", kFromOne}},
      {"append_below: nan", {"append_below", "nan", "a number, inf or -inf"}},
  };
  std::vector<BadField> for_all = fields, for_second = fields;
  for (BadField& field : for_all) {
    field.text = absl::StrCat("budget { ", field.text, " }");
    field.problem.path = absl::StrCat("budget.", field.problem.path);
  }
  for (BadField& field : for_second) {
    field.text = absl::StrCat("head_budgets { } head_budgets { ", field.text, " }");
    field.problem.path = absl::StrCat("head_budgets[1].", field.problem.path);
  }
  ExpectRefusals("kvm", kSoundKvm, for_all);
  ExpectRefusals("kvm", kSoundKvm, for_second);
}

TEST(MixerProblems, KvmBudgetsOfHeads) {
  const std::string one_each = "none, or one for each of the 2 key/value heads";
  ExpectRefusals("kvm", kSoundKvm,
                 {{"head_budgets { }", {"head_budgets", "1 budgets", one_each}},
                  {"head_budgets { } head_budgets { } head_budgets { }", {"head_budgets", "3 budgets", one_each}},
                  {"head_budgets { } head_budgets { } budget { }",
                   {"head_budgets", "budgets of heads beside one of all", "either budget or head_budgets"}}});
}

TEST(MixerProblems, InfiniteThresholdsAreSound) {
  for (const std::string threshold : {"inf", "-inf", "-3.5"}) {
    EXPECT_THAT(Problems(absl::StrCat("kvm { ", kSoundKvm, " budget { append_below: ", threshold, " } }")), IsEmpty());
  }
}

// When the whole first chunk is sinks, the first update, at 24 tokens, must append a row that merges can go to.
TEST(MixerProblems, AllSinksNeedARowThatTakesMerges) {
  const auto problems = [](const std::string& budget) {
    return Problems(absl::StrCat("kvm { ", kSoundKvm, " num_sinks: 8 ", budget, " }"));
  };
  const StackProblem refusal = {
      "mixers[0].kvm.num_sinks", "8",
      "less than chunk_len (8), or a budget that adds a row at the first update: no row could take a merge"};
  const auto growing = [](double factor, const std::string& more = "") {
    return absl::StrCat(" { growth: POWER_LAW factor: ", factor, " max_chunks: 100 ", more, "} ");
  };
  EXPECT_THAT(problems("budget" + growing(2)), IsEmpty());               // 2·sqrt(24) = 9 rows
  EXPECT_THAT(problems("budget" + growing(1.8)), ElementsAre(refusal));  // 8
  EXPECT_THAT(problems(""), ElementsAre(refusal));
  // No token needs to be that unlike the rows.
  EXPECT_THAT(problems("budget" + growing(2, "append_below: 1e9 ")), ElementsAre(refusal));
  EXPECT_THAT(problems("head_budgets" + growing(2) + "head_budgets" + growing(2)), IsEmpty());
  EXPECT_THAT(problems("head_budgets" + growing(2) + "head_budgets" + growing(1.8)), ElementsAre(refusal));
}

TEST(MixerProblems, NegativeHeadsAmongOtherLimitsAreRefused) {
  EXPECT_THAT(Problems("kvm { projections { num_heads: 4 num_kv_heads: -5 rotary_dim: 4 } chunk_len: 8 num_sinks: 8 }"),
              Contains(StackProblem{"mixers[0].kvm.projections.num_kv_heads", "-5", kFromOne}));
}

TEST(MixerProblems, Ovq) {
  // Rotary fields mean nothing to it.
  const std::string sound = "projections { num_heads: 4 rotary_dim: 999 rotary_theta: -1 } chunk_len: 1";
  ExpectRefusals(
      "ovq", sound,
      {{"chunk_len: 0", {"chunk_len", "0", kFromOne}},
       {"chunk_len: -1", {"chunk_len", "-1", kFromOne}},
       {"max_centroids: 0", {"max_centroids", "0", kFromOne}},
       {"max_centroids: -1", {"max_centroids", "-1", kFromOne}},
       {"projections { num_heads: 0 }", {"projections.num_heads", "0", kFromOne}},
       {"projections { num_heads: -4 }", {"projections.num_heads", "-4", kFromOne}},
       {"projections { num_heads: 5 }",
        {"projections.num_heads", "5", "a divisor of the width (32) unless head sizes are given"}},
       {"projections { num_kv_heads: 0 }", {"projections.num_kv_heads", "0", kFromOne}},
       {"projections { num_kv_heads: 3 }", {"projections.num_kv_heads", "3", "a divisor of the number of heads (4)"}},
       {"projections { num_kv_heads: 2 }",
        {"projections.num_kv_heads", "2", "the number of heads (4), as ovq has no key/value groups"}},
       {"projections { qk_head_dim: -1 }", {"projections.qk_head_dim", "-1", kFromOne}},
       {"projections { qk_head_dim: 4 }", {"projections.v_head_dim", "8", "qk_head_dim (4)"}},
       {"projections { v_head_dim: 0 }", {"projections.v_head_dim", "0", kFromOne}},
       {"projections { qk_head_dim: 4 v_head_dim: 4 }",
        {"projections.v_head_dim times num_heads", "16", "the width (32)"}},
       {"projections { value_gate_rank: 0 }", {"projections.value_gate_rank", "0", kFromOne}}});
}

TEST(MixerProblems, Rwkv7) {
  std::vector<BadField> fields = {
      {"num_heads: 0", {"num_heads", "0", kFromOne}},
      {"num_heads: -2", {"num_heads", "-2", kFromOne}},
      {"num_heads: 3", {"num_heads", "3", "a divisor of the width (32)"}},
  };
  for (const std::string rank : {"decay_rank", "in_context_rate_rank", "value_rank", "gate_rank"}) {
    fields.push_back({rank + ": 0", {rank, "0", kFromOne}});
    fields.push_back({rank + ": -1", {rank, "-1", kFromOne}});
  }
  ExpectRefusals("rwkv7", "num_heads: 2", fields);
  EXPECT_THAT(Problems("rwkv7 { }"), ElementsAre(StackProblem{"mixers[0].rwkv7.num_heads", "0", kFromOne}));
}

TEST(MixerProblems, DeltaNets) {
  const std::string small = "a number above 1e-30 and at most 1";
  const std::vector<BadField> fields = {
      {"num_heads: 0", {"num_heads", "0", kFromOne}},
      {"num_heads: -1", {"num_heads", "-1", kFromOne}},
      {"num_heads: 3", {"num_heads", "3", "a divisor of the width (32) unless qk_head_dim is given"}},
      {"num_value_heads: 0", {"num_value_heads", "0", kFromOne}},
      {"num_value_heads: -4", {"num_value_heads", "-4", kFromOne}},
      {"num_value_heads: 6", {"num_value_heads", "6", "a multiple of the number of heads (4)"}},
      {"qk_head_dim: 0", {"qk_head_dim", "0", kFromOne}},
      {"qk_head_dim: -3", {"qk_head_dim", "-3", kFromOne}},
      {"v_head_dim: 0", {"v_head_dim", "0", kFromOne}},
      {"v_head_dim: -3", {"v_head_dim", "-3", kFromOne}},
      {"v_head_dim: 16777216", {"v_head_dim times num_value_heads", "67108864", kFromOne}},
      {"num_value_heads: 8388608", {"qk_head_dim times num_value_heads", "67108864", kFromOne}},
      {"convolution { size: 0 }", {"convolution.size", "0", "a whole number from 1 to 16"}},
      {"convolution { size: -4 }", {"convolution.size", "-4", "a whole number from 1 to 16"}},
      {"convolution { size: 17 }", {"convolution.size", "17", "a whole number from 1 to 16"}},
      {"norm_epsilon: 0", {"norm_epsilon", "0", small}},
      {"norm_epsilon: -1e-5", {"norm_epsilon", "-1e-05", small}},
      {"norm_epsilon: nan", {"norm_epsilon", "nan", small}},
  };
  for (const std::string kind : {"gated_delta_net", "kimi_delta"}) {
    ExpectRefusals(kind, "num_heads: 4 v_head_dim: 1", fields);
    EXPECT_THAT(Problems(kind + " { }"),
                ElementsAre(StackProblem{absl::StrCat("mixers[0].", kind, ".num_heads"), "0", kFromOne}));
    EXPECT_THAT(Problems(kind + " { num_heads: 4 convolution { enabled: false size: 0 } }"), IsEmpty());
  }
}

TEST(MixerProblems, DeltaNetsPastInt32) {
  EXPECT_THAT(Problems("kimi_delta { num_heads: 16777216 qk_head_dim: 16777216 }"),
              Contains(StackProblem{"mixers[0].kimi_delta.qk_head_dim times num_heads", "281474976710656", kFromOne}));
}

TEST(MixerProblems, KimiDeltaBounds) {
  const std::string negative = "a number from -1e+30 to -1e-30";
  ExpectRefusals("kimi_delta", "num_heads: 4 decay_lower_bound: -5",
                 {{"decay_lower_bound: 0", {"decay_lower_bound", "0", negative}},
                  {"decay_lower_bound: 5", {"decay_lower_bound", "5", negative}},
                  {"decay_lower_bound: -inf", {"decay_lower_bound", "-inf", negative}},
                  {"decay_lower_bound: nan", {"decay_lower_bound", "nan", negative}}});
}

TEST(MixerProblems, NoKind) {
  EXPECT_THAT(Problems(""), ElementsAre(StackProblem{
                                "mixers[0]", "no kind",
                                "one of attention, kvm, rwkv7, block_window, ovq, gated_delta_net, kimi_delta"}));
}

TEST(MixerProblems, UnknownEnumValues) {
  const std::string bad[] = {
      "rotary_table: FLOAT64",
      "rotary_table: 7",
      "mixers { attention { projections { value_residual: CUBIC } } }",
      "mixers { kvm { projections { value_residual: 4 } } }",
      "mixers { kvm { budget { growth: EXPONENTIAL } } }",
      "mixers { kvm { head_budgets { growth: 3 } } }",
      "mixers { mamba { } }",
  };
  const std::string words[] = {"FLOAT64", "7", "CUBIC", "4", "EXPONENTIAL", "3", "mamba"};
  for (size_t i = 0; i < std::size(bad); ++i) {
    const absl::Status status = ParseStackSpec(bad[i], "spec").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad[i];
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("spec:1:")) << bad[i];
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("\"" + words[i] + "\"")) << bad[i];
  }
}

}  // namespace
}  // namespace kvm
