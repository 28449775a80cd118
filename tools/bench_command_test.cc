#include "tools/bench_command.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/command_testing.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

// Every case once, on one thread, at sizes that take no time.
const std::vector<std::string>& Tiny() {
  static const auto* const flags = new std::vector<std::string>{
      "--rounds=1",       "--threads=1", "--memory-mib=1", "--width=64",       "--heads=2",     "--vocab=96",
      "--rotary=8",       "--chunk=16",  "--rows=40",      "--layers=2",       "--centroids=8", "--ovq-chunk=8",
      "--contexts=24,80", "--piece=32",  "--tokens=256",   "--decode-tokens=2"};
  return *flags;
}

std::vector<std::string> Args(const std::vector<std::string>& more) {
  std::vector<std::string> args = {"bench"};
  args.insert(args.end(), more.begin(), more.end());
  args.insert(args.end(), Tiny().begin(), Tiny().end());
  return args;
}

class BenchCommandTest : public CommandFixture {
 protected:
  nlohmann::json RunJson(std::vector<std::string> args) {
    args.push_back("--json");
    EXPECT_EQ(Run(args), 0) << err_;
    nlohmann::json json = nlohmann::json::parse(out_, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << out_;
    return json;
  }
};

void ExpectSpread(const nlohmann::json& spread) {
  EXPECT_GT(spread["min"], 0);
  EXPECT_GE(spread["median"], spread["min"]);
  EXPECT_GE(spread["max"], spread["median"]);
}

void ExpectCeilings(const nlohmann::json& ceilings) {
  ASSERT_EQ(ceilings.size(), 1u);
  EXPECT_EQ(ceilings[0]["threads"], 1);
  ExpectSpread(ceilings[0]["flop_per_second"]);
  ExpectSpread(ceilings[0]["read_bytes_per_second"]);
}

TEST_F(BenchCommandTest, OperatorsAreReportedWithTheirShares) {
  const nlohmann::json json = RunJson(Args({"operators"}));
  EXPECT_GT(json["machine"]["physical_cores"], 0);
  EXPECT_GT(json["machine"]["memory_bytes"], 0);
  EXPECT_FALSE(json["machine"]["instruction_set"].get<std::string>().empty());
  EXPECT_FALSE(json.contains("contexts"));
  ExpectCeilings(json["operators"]["ceilings"]);
  const nlohmann::json& results = json["operators"]["results"];
  ASSERT_GT(results.size(), 20u);
  EXPECT_EQ(results[0]["kernel"], "matmul");
  EXPECT_EQ(results[0]["what"], "16 rows, 64 -> 256, f32");
  for (const nlohmann::json& result : results) {
    ExpectSpread(result["seconds"]);
    EXPECT_GT(result["flop_per_second"], 0);
    EXPECT_GT(result["bytes_per_second"], 0);
    EXPECT_GT(result["share"], 0);
  }
}

TEST_F(BenchCommandTest, PrefillAndDecodingAreReportedAtEveryContext) {
  const nlohmann::json json = RunJson(Args({"prefill", "decode"}));
  EXPECT_FALSE(json.contains("operators"));
  ExpectCeilings(json["contexts"]["ceilings"]);
  const nlohmann::json& contexts = json["contexts"]["results"][0]["contexts"];
  ASSERT_EQ(contexts.size(), 2u);
  EXPECT_EQ(contexts[0]["context"], 24);
  EXPECT_EQ(contexts[0]["piece_tokens"], 24);
  EXPECT_EQ(contexts[1]["piece_tokens"], 32);
  for (const nlohmann::json& context : contexts) {
    EXPECT_GT(context["rows"], 0);
    EXPECT_GT(context["read_seconds"], 0);
    EXPECT_GT(context["flop_per_prompt_token"], 0);
    EXPECT_GT(context["flop_per_decoded_token"], context["flop_per_prompt_token"]);
    EXPECT_GT(context["bytes_per_decoded_token"], 0);
    const nlohmann::json& times = context["times"][0];
    EXPECT_EQ(times["threads"], 1);
    ExpectSpread(times["prefill"]["seconds"]);
    ExpectSpread(times["prefill"]["tokens_per_second"]);
    ExpectSpread(times["decode"]["seconds_per_token"]);
    ExpectSpread(times["decode"]["first_token_seconds"]);
    EXPECT_GT(times["prefill"]["share_of_multiply_adds"], 0);
    EXPECT_GT(times["decode"]["share_of_reads"], 0);
  }
}

TEST_F(BenchCommandTest, StateIsReportedForBothBudgets) {
  const nlohmann::json json = RunJson(Args({"state"}));
  ExpectCeilings(json["state"]["ceilings"]);
  EXPECT_GT(json["state"]["weight_bytes"], 0);
  const nlohmann::json& results = json["state"]["results"];
  ASSERT_EQ(results.size(), 2u);
  EXPECT_THAT(results[0]["model"], HasSubstr("fixed:256"));
  EXPECT_THAT(results[1]["model"], HasSubstr("sqrt:16"));
  for (const nlohmann::json& result : results) {
    ASSERT_EQ(result["contexts"].size(), 4u);
    EXPECT_EQ(result["contexts"][0]["context"], 32);
    EXPECT_EQ(result["contexts"][3]["context"], 256);
    EXPECT_GT(result["contexts"][3]["resident_bytes"], json["state"]["weight_bytes"]);
    EXPECT_TRUE(result["exponents"]["total"].is_number());
  }
}

TEST_F(BenchCommandTest, TablesNameWhatWasMeasured) {
  ASSERT_EQ(Run(Args({"operators", "prefill", "decode", "state"})), 0) << err_;
  for (const char* text : {"ceilings", "slot attention: 2 heads", "of the time of the same chunk's attention",
                           "K, 2 layers of width 64, budget sqrt:16; weights as-is, state f32", "prefill to",
                           "decode at", "time of a piece ~ context^", "weights + states"}) {
    EXPECT_THAT(out_, HasSubstr(text));
  }
}

TEST_F(BenchCommandTest, WeightTypesAreComparedInOneRun) {
  const nlohmann::json json = RunJson(Args({"decode", "--weights=f32,bf16"}));
  const nlohmann::json& results = json["contexts"]["results"];
  ASSERT_EQ(results.size(), 2u);
  EXPECT_THAT(results[1]["model"], HasSubstr("weights bf16"));
  EXPECT_LT(results[1]["contexts"][0]["bytes_per_decoded_token"], results[0]["contexts"][0]["bytes_per_decoded_token"]);
}

TEST_F(BenchCommandTest, ModelsOfFilesAreMeasured) {
  const std::string model = "--model=" + Golden("kvm_sqrt");
  const nlohmann::json json =
      RunJson({"bench", "decode", model, "--rounds=1", "--threads=1", "--contexts=40", "--memory-mib=1"});
  EXPECT_THAT(json["contexts"]["results"][0]["model"], HasSubstr("kvm_sqrt"));
  EXPECT_EQ(Run({"bench", "decode", model, "--width=8"}), 2);
  EXPECT_THAT(err_, HasSubstr("--width"));
}

TEST_F(BenchCommandTest, WrongTopicsAreRefused) {
  EXPECT_EQ(Run({"bench", "operator"}), 2);
  EXPECT_THAT(err_, HasSubstr("'operator' cannot be measured; expected operators, prefill, decode or state"));
}

TEST_F(BenchCommandTest, StopsForCtrlC) {
  interrupted_ = true;
  for (const char* topic : {"operators", "decode", "state"}) {
    EXPECT_EQ(Run(Args({topic})), 130) << topic;
  }
}

TEST_F(BenchCommandTest, HelpExplainsTopics) {
  ASSERT_EQ(Run({"help", "bench"}), 0);
  EXPECT_THAT(out_, HasSubstr("usage: kvm bench [operators] [prefill] [decode] [state]"));
}

}  // namespace
}  // namespace kvm
