#include "tools/bench_command.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "testing/command_testing.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

// Every case once, on one thread, at sizes that take no time.
std::vector<std::string> Args(const std::vector<std::string>& topics, const std::vector<std::string>& more = {}) {
  const auto asks = [&](const char* topic) { return std::find(topics.begin(), topics.end(), topic) != topics.end(); };
  std::vector<std::string> args = {"bench"};
  const auto add = [&](const std::vector<std::string>& some) { args.insert(args.end(), some.begin(), some.end()); };
  add(topics);
  add({"--rounds=1", "--threads=1", "--memory-mib=1", "--width=64", "--heads=2", "--vocab=96", "--chunk=16",
       "--centroids=8", "--ovq-chunk=8"});
  if (asks("operators")) add({"--rows=40"});
  if (asks("prefill") || asks("decode")) add({"--contexts=24,80"});
  if (asks("state")) add({"--tokens=256"});
  if (asks("decode") || asks("state")) add({"--decode-tokens=2"});
  if (asks("prefill") || asks("decode") || asks("state")) add({"--rotary=8", "--layers=2", "--piece=32"});
  add(more);
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
                           "K, 2 layers of width 64, budget sqrt:16 (at least 256 rows); weights as-is, state f32",
                           "prefill to", "decode at", "time of a piece ~ context^", "weights + states"}) {
    EXPECT_THAT(out_, HasSubstr(text));
  }
}

TEST_F(BenchCommandTest, WeightTypesAreComparedInOneRun) {
  const nlohmann::json json = RunJson(Args({"decode"}, {"--weights=f32,bf16"}));
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
  EXPECT_EQ(Run({"bench", "operators", "decode", model, "--layers=8"}), 2);
  EXPECT_THAT(err_, HasSubstr("--layers goes without --model"));
}

TEST_F(BenchCommandTest, WrongTopicsAreRefused) {
  EXPECT_EQ(Run({"bench", "operator"}), 2);
  EXPECT_THAT(err_, HasSubstr("'operator' cannot be measured; expected operators, prefill, decode or state"));
}

TEST_F(BenchCommandTest, FlagsAreCheckedBeforeAnythingIsMeasured) {
  interrupted_ = true;  // measuring would say so
  const std::vector<std::string> all = {"operators", "prefill", "decode"};
  for (const auto& [flag, says] : {std::make_pair("--weights=f32,f8", "--weights=f8: expected as-is"),
                                   std::make_pair("--budget=cube:2", "--budget=cube:2: expected fixed"),
                                   std::make_pair("--pattern=X", "'X' is no mixer"),
                                   std::make_pair("--heads=7", "--width=64 is no multiple of --heads=7")}) {
    EXPECT_EQ(Run(Args(all, {flag})), 2) << flag;
    EXPECT_THAT(err_, HasSubstr(says));
    EXPECT_EQ(out_, "");
  }
  EXPECT_EQ(Run(Args({"state"}, {"--budget=cube:2"})), 2);
  EXPECT_EQ(out_, "");
  for (const char* model : {"--model=absent", "--model=absent.textproto"}) {
    EXPECT_EQ(Run({"bench", "operators", "decode", model}), 1) << model;
    EXPECT_THAT(err_, HasSubstr("absent"));
    EXPECT_EQ(out_, "");
  }
}

TEST_F(BenchCommandTest, WhatCannotFitInMemoryIsRefusedBeforeAnythingIsMeasured) {
  interrupted_ = true;  // measuring would say so
  for (const char* flag : {"--chunk=16777216", "--vocab=16777216"}) {
    EXPECT_EQ(Run(Args({"operators"}, {flag, "--width=4096"})), 1) << flag;
    EXPECT_THAT(err_, HasSubstr("matrices, chunks and rows of these sizes take"));
    EXPECT_THAT(err_, HasSubstr("--chunk or --rows"));
    EXPECT_EQ(out_, "");
  }
  EXPECT_EQ(Run(Args({"operators", "decode"}, {"--pattern=A", "--contexts=1073741824", "--heads=1"})), 1);
  EXPECT_THAT(err_, HasSubstr("states of 1,073,741,824 tokens take"));
  EXPECT_EQ(out_, "");
}

TEST_F(BenchCommandTest, StacksWithoutABudgetAreMeasuredOnce) {
  const nlohmann::json json = RunJson(Args({"state"}, {"--pattern=A", "--heads=1"}));
  EXPECT_EQ(json["state"]["results"].size(), 1u);
}

TEST_F(BenchCommandTest, ATypeOfWeightsIsMeasuredOnce) {
  const nlohmann::json json = RunJson(Args({"prefill"}, {"--weights=f32,bf16,f32"}));
  EXPECT_EQ(json["contexts"]["results"].size(), 2u);
}

TEST_F(BenchCommandTest, ThreadsThatCannotRunAreNoted) {
  ASSERT_EQ(Run(Args({"state"}, {"--threads=1024"})), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("note: --threads=1024: only "));
  ASSERT_EQ(Run(Args({"state"})), 0) << err_;
  EXPECT_EQ(err_, "");
}

TEST_F(BenchCommandTest, FlagsOfOtherTopicsAreRefused) {
  for (const auto& [topic, flag] :
       {std::make_pair("operators", "--contexts=24"), std::make_pair("operators", "--model=absent"),
        std::make_pair("operators", "--layers=2"), std::make_pair("operators", "--weights=f32"),
        std::make_pair("decode", "--tokens=256"), std::make_pair("decode", "--rows=40"),
        std::make_pair("prefill", "--decode-tokens=2"), std::make_pair("state", "--contexts=24")}) {
    EXPECT_EQ(Run({"bench", topic, flag}), 2) << topic << " " << flag;
    const std::string name = flag;
    EXPECT_THAT(err_, HasSubstr(name.substr(0, name.find('=')) + " changes nothing of " + topic + "; it is for "));
    EXPECT_EQ(out_, "");
  }
  EXPECT_EQ(Run({"bench", "--tokens=256"}), 2);
  EXPECT_THAT(err_, HasSubstr("--tokens changes nothing of operators, prefill, decode; it is for state"));
  // A variable is for all commands.
  interrupted_ = true;
  ASSERT_EQ(setenv("KVM_WEIGHTS", "f32", 1), 0);
  EXPECT_EQ(Run(Args({"operators"})), 130) << err_;
  ASSERT_EQ(unsetenv("KVM_WEIGHTS"), 0);
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
