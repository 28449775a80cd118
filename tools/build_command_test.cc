#include "tools/build_command.h"

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/io/model_file.h"
#include "kvm/kernels/tensor.h"
#include "nlohmann/json.hpp"
#include "testing/command_testing.h"

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

  // The tensors of two models that `wanted` names have the same dtypes and bits.
  static void ExpectSame(const std::string& a_path, const std::string& b_path,
                         const std::function<bool(const std::string&)>& wanted) {
    const absl::StatusOr<OpenedModel> a = OpenModel(a_path), b = OpenModel(b_path);
    ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
    int compared = 0;
    for (const std::string& name : a->model.weights->Names()) {
      if (!wanted(name)) continue;
      const TensorView& x = *a->model.weights->Find(name);
      const TensorView* y = b->model.weights->Find(name);
      ASSERT_NE(y, nullptr) << name;
      ASSERT_EQ(x.dtype, y->dtype) << name;
      ASSERT_EQ(x.shape, y->shape) << name;
      EXPECT_EQ(std::memcmp(x.data, y->data, static_cast<size_t>(x.byte_size())), 0) << name;
      ++compared;
    }
    EXPECT_GT(compared, 10);
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

TEST_F(BuildCommandTest, EveryLetterIsAMixerOfThePublishedSize) {
  ASSERT_EQ(Run({"build", "--pattern=RKASBOGD", "--layers=8"}), 0) << err_;
  for (const char* line :
       {"rwkv7: RWKV-7, 12 heads of 64; layers 0\n",
        "kvm: KVM, 6 heads of 128, rotary 64, window 2 chunks of 256, 16*context^0.5 rows; layers 1\n",
        "attention: full attention, 6 heads of 128, rotary 64; layers 2\n",
        "sliding_window: attention over 256 tokens, 6 heads of 128, rotary 64; layers 3\n",
        "block_window: block window, 6 heads of 128, rotary 64, window 2 chunks of 256, 1 sink; layers 4\n",
        "ovq: OVQ, 6 heads of 128, chunks of 128, up to 2,048 centroids; layers 5\n",
        "gated_delta_net: Gated DeltaNet, 6 heads of 96/192, convolution 4; layers 6\n",
        "kimi_delta: Kimi Delta Attention, 6 heads of 128, convolution 4; layers 7\n"}) {
    EXPECT_THAT(out_, HasSubstr(line));
  }
  EXPECT_EQ(Run({"build", "--help"}), 0);
  EXPECT_THAT(out_, HasSubstr("B block window, O OVQ, G Gated DeltaNet, D Kimi Delta Attention"));
}

TEST_F(BuildCommandTest, FlagsReachTheMixersTheySpeakOf) {
  ASSERT_EQ(RunSmall({"--pattern=BO", "--kv-heads=1", "--window-chunks=3", "--sinks=2", "--centroids=99",
                      "--ovq-chunk=5", "--print-spec"}),
            0)
      << err_;
  for (const char* line :
       {"num_kv_heads: 1", "window_chunks: 3", "num_sinks: 2", "max_centroids: 99", "chunk_len: 5", "chunk_len: 8"}) {
    EXPECT_THAT(out_, HasSubstr(line));
  }
  EXPECT_EQ(Run({"build", "--spec=x.textproto", "--centroids=64"}), 2);
  EXPECT_THAT(err_, HasSubstr("--centroids goes with --pattern"));
}

TEST_F(BuildCommandTest, ShowsTheGrowthOfEachMixerForAnyStateDType) {
  ASSERT_EQ(Run({"build", "--pattern=RO", "--layers=4", "--state=int8"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("bytes of one sequence, state int8:\n"));
  EXPECT_THAT(out_, HasSubstr("bytes of all its layers\n  rwkv7 x 2 "));
  // floor(1024 · 2048 / 3072).
  EXPECT_THAT(out_, HasSubstr("  ovq                          682 "));
  ASSERT_EQ(Run({"build", "--pattern=K", "--layers=1", "--state=int8", "--budget=fixed:256", "--json"}), 0) << err_;
  const nlohmann::json json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["state_dtype"], "I8");
  // 6 heads: 256 rows of sums [257], 256 integers and two scales; a window of 512 bfloat16 keys and values; the merge
  // gates of 512 positions; what the token shift holds of q, k, v and x.
  const int64_t bytes = 6 * (256 * (257 * 4 + 256 + 8) + 512 * 256 * 2 + 512 * 4) + 4 * 768 * 4;
  EXPECT_EQ(json["state_growth"]["mixers"][0]["sizes"][0]["layer_bytes"], bytes);
  EXPECT_EQ(Run({"build", "--pattern=K", "--state=f16"}), 2);
  EXPECT_THAT(err_, HasSubstr("--state=f16: expected one of f32, bf16, int8"));
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
  ASSERT_EQ(RunSmall({"--out=" + folder, "--dtype=bf16", "--seed=3", "--pattern=RKASBOGD", "--layers=8"}), 0) << err_;
  ASSERT_EQ(Run({"inspect", folder, "--check", "--tensors"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("BF16"));
  for (const char* state : {"f32", "bf16", "int8"}) {
    ASSERT_EQ(Run({"generate", "--model=" + folder, "--prompt-ids=1,2", "--max-tokens=3", "--threads=1",
                   std::string("--state=") + state}),
              0)
        << err_;
  }
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

TEST_F(BuildCommandTest, RefusesToWriteIntoItsBase) {
  const std::string folder = Path("model");
  ASSERT_EQ(RunSmall({"--out=" + folder}), 0) << err_;
  EXPECT_EQ(Run({"build", "--base=" + folder, "--out=" + folder + "/sub", "--threads=1"}), 1);
  EXPECT_THAT(err_, HasSubstr("/sub lies in the folder of the model that it is made from"));
  EXPECT_FALSE(Exists(folder + "/sub/stack.textproto"));
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

TEST_F(BuildCommandTest, GraftsKvmLayersOntoRwkv) {
  const std::string base = Path("base"), fresh = Path("fresh"), kvm = Path("kvm"), whole = Path("whole");
  ASSERT_EQ(Run({"build", "--pattern=R", "--layers=4", "--width=64", "--vocab=100", "--seed=1", "--threads=1",
                 "--dtype=bf16", "--out=" + base}),
            0)
      << err_;
  // New mixers in two layers: all else stays, to the bit.
  ASSERT_EQ(Run({"build", "--base=" + base, "--replace=1,3=K", "--heads=2", "--rotary=8", "--chunk=8", "--seed=2",
                 "--threads=1", "--out=" + fresh}),
            0)
      << err_;
  EXPECT_THAT(out_, HasSubstr("embedding    " + base + "\n"));
  EXPECT_THAT(out_, HasSubstr("layers 0, 2  " + base + "\n"));
  EXPECT_THAT(out_, HasSubstr("layers 1, 3  new (seed 2) (mixer), " + base + " (norms and MLP)\n"));
  ASSERT_EQ(Run({"inspect", fresh}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("layers 0, 2\n"));
  ExpectSame(base, fresh, [](const std::string& name) {
    return name.find("h.1.attn.") == std::string::npos && name.find("h.3.attn.") == std::string::npos;
  });

  // The same from a checkpoint of KVM layers: the mixers alone, or the whole layers.
  ASSERT_EQ(Run({"build", "--pattern=K", "--layers=4", "--width=64", "--vocab=100", "--heads=2", "--rotary=8",
                 "--chunk=8", "--seed=3", "--threads=1", "--block-output-gain=1", "--out=" + kvm}),
            0)
      << err_;
  ASSERT_EQ(Run({"build", "--base=" + base, "--graft=mixer:1=" + kvm, "--graft=3=" + kvm, "--graft=head=" + kvm,
                 "--json", "--threads=1", "--out=" + whole}),
            0)
      << err_;
  const nlohmann::json origins = nlohmann::json::parse(out_)["origins"];
  ASSERT_EQ(origins.size(), 5u);
  EXPECT_EQ(origins[2]["part"], "layer 1");
  EXPECT_EQ(origins[2]["origin"], kvm + " (mixer), " + base + " (norms and MLP)");
  EXPECT_EQ(origins[3]["origin"], kvm);
  EXPECT_EQ(origins[4]["origin"], kvm);
  EXPECT_THAT(err_, ::testing::Not(HasSubstr("drawing")));
  const auto from_kvm = [](const std::string& name) {
    return name.find("h.1.attn.") != std::string::npos || name.find("h.3.") != std::string::npos ||
           name.find("ln_head") != std::string::npos || name.find("lm_head") != std::string::npos;
  };
  ExpectSame(kvm, whole, from_kvm);
  ExpectSame(base, whole, [&](const std::string& name) { return !from_kvm(name); });
  ASSERT_EQ(Run({"generate", "--model=" + whole, "--prompt-ids=1,2", "--max-tokens=20", "--threads=1"}), 0) << err_;
}

// What is grafted brings its mixers along, whatever part of the stack it is, and later grafts override earlier ones.
TEST_F(BuildCommandTest, GraftedLayersBringTheirMixers) {
  const auto build = [&](const std::string& letter, const std::string& out, const char* seed) {
    return Run({"build", "--pattern=" + letter, "--layers=4", "--width=64", "--vocab=100", "--heads=2", "--rotary=8",
                "--chunk=8", "--threads=1", "--block-output-gain=1", std::string("--seed=") + seed,
                "--out=" + Path(out)});
  };
  ASSERT_EQ(build("R", "r", "1"), 0) << err_;
  ASSERT_EQ(build("K", "k", "2"), 0) << err_;
  ASSERT_EQ(build("A", "a", "3"), 0) << err_;
  const auto everything = [](const std::string&) { return true; };
  ASSERT_EQ(Run({"build", "--base=" + Path("r"), "--graft=all=" + Path("k"), "--out=" + Path("all")}), 0) << err_;
  ExpectSame(Path("k"), Path("all"), everything);
  ASSERT_EQ(Run({"build", "--base=" + Path("r"), "--replace=2=S", "--heads=2", "--rotary=8", "--graft=0-1=" + Path("a"),
                 "--graft=0-3=" + Path("k"), "--graft=mixer:3=" + Path("a"), "--out=" + Path("twice")}),
            0)
      << err_;
  const auto mixer_of_3 = [](const std::string& name) { return name.find("h.3.attn.") != std::string::npos; };
  ExpectSame(Path("a"), Path("twice"), mixer_of_3);
  ExpectSame(Path("k"), Path("twice"),
             [&](const std::string& name) { return name.find(".h.") != std::string::npos && !mixer_of_3(name); });
  ASSERT_EQ(Run({"inspect", Path("twice")}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("layers 0-2\n"));
}

TEST_F(BuildCommandTest, RefusesGraftsThatDoNotFit) {
  const std::string out = Path("out");
  const std::string kvm = "--graft=1=" + Golden("kvm_sqrt");
  EXPECT_EQ(Run({"build", "--pattern=R", "--layers=2", "--width=32", "--vocab=64", kvm, "--out=" + out}), 1);
  EXPECT_THAT(err_, HasSubstr("testing/golden/kvm_sqrt: layer 1: its mixer is kvm, the stack's rwkv7\n"));
  EXPECT_EQ(Run({"build", "--base=" + Golden("rwkv7"), kvm, "--out=" + out}), 1);
  EXPECT_THAT(err_, HasSubstr("h.1.mlp.c_fc.weight: has shape [96, 32], expected [128, 32]"));
  EXPECT_EQ(Run({"build", "--base=" + Golden("rwkv7"), "--replace=2=K", "--heads=2", "--rotary=8"}), 1);
  EXPECT_THAT(err_, HasSubstr("--replace=2=K: layer 2: the stack has 2 layers"));
  EXPECT_EQ(Run({"build", "--base=" + Golden("rwkv7"), "--replace=1=K", "--heads=5", "--rotary=8"}), 2);
  EXPECT_THAT(err_, HasSubstr("--heads: got 5, expected a divisor of the width (32)"));
  EXPECT_EQ(Run({"build", "--base=absent", "--out=" + out}), 1);
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{{"--replace=1=X"},
                                                                                    {"--replace=1=KK"},
                                                                                    {"--replace=1"},
                                                                                    {"--replace=x=K"},
                                                                                    {"--graft=1"},
                                                                                    {"--graft=x=y"},
                                                                                    {"--width=64"},
                                                                                    {"--heads=2"},
                                                                                    {"--pattern=K"},
                                                                                    {"--spec=x"}}) {
    std::vector<std::string> args = {"build", "--base=" + Golden("rwkv7"), "--out=" + out};
    args.insert(args.end(), more.begin(), more.end());
    EXPECT_EQ(Run(args), 2) << more[0] << ": " << err_;
  }
  EXPECT_EQ(Run({"build", "--pattern=K", "--replace=1=K"}), 2);
  EXPECT_FALSE(Exists(out));
}

// What is wrong with the stack is said of the flag that made it so.
TEST_F(BuildCommandTest, BadShapesNameTheirFlags) {
  const struct {
    std::vector<std::string> args;
    std::string message;
  } cases[] = {
      {{"--pattern=K", "--heads=7"}, "--heads: got 7, expected a divisor of the width (768)"},
      {{"--pattern=A", "--heads=16777217"}, "--heads=16777217: expected an integer from 1 to 16777216"},
      {{"--pattern=S", "--kv-heads=4"}, "--kv-heads: got 4, expected a divisor"},
      {{"--pattern=K", "--rotary=128"}, "--rotary: got 128, expected less than the 128"},
      {{"--pattern=KA", "--rotary=7"}, "--rotary: got 7, expected an even number (see"},
      {{"--pattern=R", "--rwkv-heads=7"}, "--rwkv-heads: got 7, expected a divisor"},
      {{"--pattern=K", "--chunk=16777217"}, "--chunk=16777217: expected an integer from 1 to 16777216"},
      {{"--pattern=K", "--window-chunks=16777217"}, "--window-chunks=16777217: expected an integer from 1 to 16777216"},
      {{"--pattern=K", "--sinks=257"}, "--sinks: got 257, expected at most chunk_len (256)"},
      {{"--pattern=S", "--sliding-window=16777217"},
       "--sliding-window=16777217: expected an integer from 1 to 16777216"},
      {{"--pattern=K", "--vocab=16777217"}, "--vocab=16777217: expected an integer from 1 to 16777216"},
      {{"--pattern=R", "--width=16777280"}, "--width=16777280: expected an integer from 1 to 16777216"},
      {{"--pattern=K", "--budget=sqrt:0"}, "--budget: got 0, expected a number above 0"},
      {{"--pattern=K", "--budget=power:1:2"}, "--budget: got 2, expected a number from 0 to 1"},
      {{"--pattern=K", "--mlp-expansion=0"}, "--mlp-expansion=0: expected a number above 0 and at most 1000"},
      {{"--pattern=K", "--mlp-expansion=0.01"}, "--mlp-expansion: got 0.01, expected a number that makes the MLP 32"},
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

TEST_F(BuildCommandTest, HeadsFollowTheWidth) {
  for (const auto& [width, heads] :
       {std::make_pair("256", "2 heads of 128, rotary 64"), std::make_pair("1024", "8 heads of 128, rotary 64"),
        std::make_pair("320", "2 heads of 160, rotary 64"), std::make_pair("200", "2 heads of 100, rotary 50"),
        std::make_pair("64", "1 head of 64, rotary 32"), std::make_pair("257", "1 head of 257, rotary 64")}) {
    ASSERT_EQ(Run({"build", "--pattern=KASB", "--layers=4", std::string("--width=") + width}), 0) << err_;
    EXPECT_THAT(out_, HasSubstr(std::string("kvm: KVM, ") + heads));
  }
  ASSERT_EQ(Run({"build", "--pattern=K", "--width=256", "--heads=8"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("8 heads of 32, rotary 16"));
  EXPECT_EQ(Run({"help", "build"}), 0);
  EXPECT_THAT(out_, HasSubstr("heads of all mixers but R [of 128 channels, or the nearest number"));
}

TEST_F(BuildCommandTest, ABudgetThatGrowsHasALeast) {
  ASSERT_EQ(Run({"build", "--pattern=K", "--budget=sqrt:1"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("1*context^0.5 rows, at least 256; layers"));
  EXPECT_EQ(Run({"help", "build"}), 0);
  EXPECT_THAT(out_, HasSubstr("those of sqrt and power are never fewer than 256"));
}

TEST_F(BuildCommandTest, RefusesWhatNoMachineHolds) {
  // 2^40 parameters, as float32.
  EXPECT_EQ(Run({"build", "--pattern=R", "--layers=1", "--width=65536", "--mlp-expansion=0.001", "--vocab=8000000",
                 "--out=" + Path("model")}),
            1);
  EXPECT_THAT(err_, HasSubstr("the new weights take 3.9 TiB and "));
  EXPECT_FALSE(std::filesystem::exists(Path("model")));
}

TEST_F(BuildCommandTest, InterruptLeavesNoFolder) {
  interrupted_ = true;
  EXPECT_EQ(RunSmall({"--out=" + Path("model")}), 130);
  EXPECT_FALSE(std::filesystem::exists(Path("model")));
}

TEST_F(BuildCommandTest, InterruptWhileABaseIsWritten) {
  const std::string out = Path("model");
  int interrupted = 0;
  for (int at = 1;; at += 10) {
    interrupted_ = false;
    interrupt_at_ = at;
    const int exit_status = Run({"build", "--base=" + Golden("kvm_sqrt"), "--dtype=bf16", "--out=" + out});
    if (exit_status == 0) break;
    ++interrupted;
    EXPECT_EQ(exit_status, 130) << err_;
    EXPECT_FALSE(std::filesystem::exists(out)) << at;
  }
  EXPECT_GT(interrupted, 3);
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
