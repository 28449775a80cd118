#include "tools/build_command.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/command_testing.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

class BuildCommandTest : public CommandFixture {
 protected:
  int RunSmall(const std::vector<std::string>& more) {
    std::vector<std::string> args = {"build",       "--pattern=RK", "--layers=4", "--width=64", "--heads=2",
                                     "--vocab=100", "--rotary=8",   "--chunk=8",  "--threads=1"};
    args.insert(args.end(), more.begin(), more.end());
    return Run(args);
  }
};

TEST_F(BuildCommandTest, DefaultsAreThePublishedOnes) {
  ASSERT_EQ(Run({"build", "--pattern=K", "--print-spec"}), 0) << err_;
  for (const char* line :
       {"vocab_size: 50304", "width: 768", "num_heads: 6", "rotary_dim: 64", "chunk_len: 256", "window_chunks: 2",
        "num_sinks: 1", "growth: POWER_LAW", "factor: 16", "exponent: 0.5", "min_rows: 256", "max_chunks: 10000"}) {
    EXPECT_THAT(out_, HasSubstr(line));
  }
}

TEST_F(BuildCommandTest, PrintsSizesWithoutWriting) {
  ASSERT_EQ(Run({"build", "--pattern=RRRK"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("rwkv7: RWKV-7, 12 heads of 64; layers 0-2, 4-6, 8-10\n"));
  EXPECT_THAT(out_, HasSubstr("16*context^0.5 rows; layers 3, 7, 11\n"));
  // 12 layers x 2 x 768 channels x 4 bytes x 2^20 tokens.
  EXPECT_THAT(out_, HasSubstr("72.0 GiB"));
}

TEST_F(BuildCommandTest, JsonHasTheSameNumbers) {
  ASSERT_EQ(Run({"build", "--pattern=RRRK", "--json"}), 0) << err_;
  const nlohmann::json json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["layers"].size(), 12u);
  EXPECT_EQ(json["state_sizes"][0]["context"], 1024);
  // 12 layers x 2 x 768 channels x 4 bytes x 1024 tokens.
  EXPECT_EQ(json["state_sizes"][0]["full_cache_bytes"], 12 * 2 * 768 * 4 * 1024);
}

TEST_F(BuildCommandTest, BudgetsBecomeSpecs) {
  ASSERT_EQ(RunSmall({"--print-spec", "--budget=fixed:20"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("growth: FIXED"));
  EXPECT_THAT(out_, HasSubstr("min_rows: 20"));
  EXPECT_THAT(out_, HasSubstr("max_chunks: 3"));
  ASSERT_EQ(RunSmall({"--print-spec", "--budget=power:2:0.75"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("factor: 2"));
  EXPECT_THAT(out_, HasSubstr("exponent: 0.75"));
  ASSERT_EQ(RunSmall({"--print-spec", "--budget=saturation:1024"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("growth: SATURATION"));
  EXPECT_THAT(out_, HasSubstr("limit: 1024"));
  for (const char* budget : {"fixed", "fixed:0", "fixed:1.5", "sqrt:x", "power:1", "linear:3"}) {
    EXPECT_EQ(RunSmall({std::string("--budget=") + budget}), 2) << budget;
    EXPECT_THAT(err_, HasSubstr("expected fixed:ROWS")) << budget;
  }
}

TEST_F(BuildCommandTest, WritesAModelThatRuns) {
  const std::string folder = Path("model");
  ASSERT_EQ(RunSmall({"--out=" + folder, "--dtype=bf16", "--seed=3"}), 0) << err_;
  ASSERT_EQ(Run({"inspect", folder, "--check", "--tensors"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("BF16"));
  ASSERT_EQ(Run({"generate", "--model=" + folder, "--prompt-ids=1,2", "--max-tokens=3", "--threads=1"}), 0) << err_;
}

TEST_F(BuildCommandTest, TakesASpecFileAndATokenizer) {
  ASSERT_EQ(Run({"build", "--pattern=K", "--layers=1", "--width=32", "--heads=1", "--rotary=8", "--print-spec"}), 0);
  WriteAll(Path("stack.textproto"), out_);
  const std::string folder = Path("model");
  ASSERT_EQ(
      Run({"build", "--spec=" + Path("stack.textproto"), "--tokenizer=" + Gpt2(), "--out=" + folder, "--threads=1"}), 0)
      << err_;
  ASSERT_EQ(Run({"tokenize", "--model=" + folder, "--text=Hello"}), 0) << err_;
  EXPECT_EQ(out_, "15496\n");
}

TEST_F(BuildCommandTest, RefusesAnOccupiedOrUnwritableFolder) {
  const std::string folder = Path("model");
  ASSERT_EQ(RunSmall({"--out=" + folder}), 0) << err_;
  const std::string weights = ReadAll(folder + "/model.safetensors");
  EXPECT_EQ(RunSmall({"--out=" + folder, "--seed=9"}), 1);
  EXPECT_THAT(err_, HasSubstr(folder));
  EXPECT_EQ(ReadAll(folder + "/model.safetensors") == weights, true);

  WriteAll(Path("file"), "in the way");
  EXPECT_EQ(RunSmall({"--out=" + Path("file")}), 1);
  EXPECT_EQ(ReadAll(Path("file")), "in the way");
  EXPECT_EQ(RunSmall({"--out=" + Path("file") + "/model"}), 1);
  EXPECT_THAT(err_, HasSubstr(Path("file")));
}

// What is wrong with the stack is said of the flag that made it so.
TEST_F(BuildCommandTest, BadShapesNameTheirFlags) {
  const struct {
    std::vector<std::string> args;
    std::string message;
  } cases[] = {
      {{"--pattern=K", "--heads=7"}, "--heads: got 7, expected a divisor of the width (768)"},
      {{"--pattern=A", "--heads=16777217"}, "--heads: got 16777217"},
      {{"--pattern=S", "--kv-heads=4"}, "--kv-heads: got 4, expected a divisor"},
      {{"--pattern=K", "--rotary=128"}, "--rotary: got 128, expected less than the 128"},
      {{"--pattern=KA", "--rotary=7"}, "--rotary: got 7, expected an even number (see"},
      {{"--pattern=R", "--rwkv-heads=7"}, "--rwkv-heads: got 7, expected a divisor"},
      {{"--pattern=K", "--chunk=16777217"}, "--chunk: got 16777217, expected a whole number from 1 to 16777216"},
      {{"--pattern=K", "--window-chunks=16777217"}, "--window-chunks: got 16777217"},
      {{"--pattern=K", "--sinks=257"}, "--sinks: got 257, expected at most chunk_len (256)"},
      {{"--pattern=S", "--sliding-window=16777217"}, "--sliding-window: got 16777217"},
      {{"--pattern=K", "--vocab=16777217"}, "--vocab: got 16777217, expected a whole number from 1 to 16777216"},
      {{"--pattern=R", "--width=16777280"}, "--width: got 16777280"},
      {{"--pattern=K", "--budget=sqrt:0"}, "--budget: got 0, expected a number above 0"},
      {{"--pattern=K", "--budget=power:1:2"}, "--budget: got 2, expected a number from 0 to 1"},
      {{"--pattern=K", "--mlp-expansion=0"}, "--mlp-expansion: got 0"},
      {{"--pattern=K", "--layers=4097"}, "--layers=4097: expected an integer from 1 to 4096"},
      {{"--pattern=R", "--width=200"}, "--width=200 is no multiple of 64"},
  };
  for (const auto& c : cases) {
    std::vector<std::string> args = {"build"};
    args.insert(args.end(), c.args.begin(), c.args.end());
    EXPECT_EQ(Run(args), 2) << c.message;
    EXPECT_THAT(err_, HasSubstr(c.message));
    EXPECT_EQ(out_, "");
  }
  // As many layers as the flag allows are as many as a stack may have.
  EXPECT_EQ(Run({"build", "--pattern=K", "--layers=4096", "--print-spec"}), 0) << err_;
}

TEST_F(BuildCommandTest, RwkvHeadsFollowTheWidth) {
  ASSERT_EQ(Run({"build", "--pattern=R", "--layers=1", "--width=128"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("parameters: 1 layer, width 128"));
  EXPECT_THAT(out_, HasSubstr("RWKV-7, 2 heads of 64;"));
  ASSERT_EQ(Run({"build", "--pattern=R", "--layers=1", "--width=32"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("RWKV-7, 1 head of 32;"));
  ASSERT_EQ(Run({"build", "--pattern=R", "--layers=1", "--width=200", "--rwkv-heads=5"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("RWKV-7, 5 heads of 40;"));
}

TEST_F(BuildCommandTest, RefusesWhatNoMachineHolds) {
  // 2^40 parameters, as float32.
  EXPECT_EQ(Run({"build", "--pattern=R", "--layers=1", "--width=65536", "--mlp-expansion=0.001", "--vocab=8000000",
                 "--out=" + Path("model")}),
            1);
  EXPECT_THAT(err_, HasSubstr("the new weights take 3.9 TiB and this machine has"));
  EXPECT_FALSE(std::filesystem::exists(Path("model")));
}

TEST_F(BuildCommandTest, InterruptLeavesNoFolder) {
  interrupted_ = true;
  EXPECT_EQ(RunSmall({"--out=" + Path("model")}), 130);
  EXPECT_FALSE(std::filesystem::exists(Path("model")));
}

TEST_F(BuildCommandTest, RefusesBadFlags) {
  EXPECT_EQ(Run({"build"}), 2);
  EXPECT_EQ(Run({"build", "--pattern=RX"}), 2);
  EXPECT_THAT(err_, HasSubstr("'X' is no mixer"));
  EXPECT_EQ(Run({"build", "--pattern=RRRK", "--layers=6"}), 2);
  EXPECT_THAT(err_, HasSubstr("--layers=6 is no multiple of the 4 layers in --pattern=RRRK"));
  EXPECT_EQ(Run({"build", "--spec=x.textproto", "--width=64"}), 2);
  EXPECT_THAT(err_, HasSubstr("--width goes with --pattern"));
  EXPECT_EQ(Run({"build", "--pattern=K", "--widht=64"}), 2);
  EXPECT_THAT(err_, HasSubstr("did you mean --width?"));
  EXPECT_EQ(RunSmall({"--tokenizer=" + Gpt2()}), 1);
  EXPECT_THAT(err_, HasSubstr("50257 tokens, and the stack's vocabulary has 100"));
  EXPECT_EQ(Run({"build", "--spec=absent.textproto"}), 1);
}

}  // namespace
}  // namespace kvm
