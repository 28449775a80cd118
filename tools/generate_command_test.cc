#include "tools/generate_command.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "testing/command_testing.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// As few channels as GPT-2's vocabulary, padded, lets be quick.
constexpr char kTextStack[] = R"(
    vocab_size: 50304 width: 32
    mixers { name: "kvm" kvm { projections { num_heads: 1 rotary_dim: 8 } chunk_len: 8 } }
    layers: ["kvm"])";

class GenerateCommandTest : public CommandFixture {
 protected:
  int RunIds(const std::vector<std::string>& more) {
    std::vector<std::string> args = {"generate", "--model=" + Golden("kvm_sqrt"), "--threads=1"};
    args.insert(args.end(), more.begin(), more.end());
    return Run(args);
  }

  int RunText(const std::vector<std::string>& more) {
    WriteAll(Path("stack.textproto"), kTextStack);
    std::vector<std::string> args = {"generate", "--model=" + Path("stack.textproto"), "--tokenizer=" + Gpt2(),
                                     "--threads=1"};
    args.insert(args.end(), more.begin(), more.end());
    return Run(args);
  }
};

TEST_F(GenerateCommandTest, PrintsIdsForPromptIds) {
  ASSERT_EQ(RunIds({"--prompt-ids=1,2,3", "--max-tokens=12", "--temperature=0"}), 0) << err_;
  std::istringstream ids(out_);
  int count = 0;
  for (int id; ids >> id; ++count) {
    EXPECT_GE(id, 0);
    EXPECT_LT(id, 64);
  }
  EXPECT_EQ(count, 12);
  EXPECT_THAT(err_, HasSubstr("prompt: 3 tokens, "));
  EXPECT_THAT(err_, HasSubstr("generated: 12 tokens, "));
  EXPECT_THAT(err_, HasSubstr("for 15 tokens"));
}

TEST_F(GenerateCommandTest, TheSeedDecides) {
  ASSERT_EQ(RunIds({"--prompt-ids=1,2,3", "--max-tokens=30", "--seed=5"}), 0) << err_;
  const std::string first = out_;
  ASSERT_EQ(RunIds({"--prompt-ids=1,2,3", "--max-tokens=30", "--seed=5"}), 0) << err_;
  EXPECT_EQ(out_, first);
  ASSERT_EQ(RunIds({"--prompt-ids=1,2,3", "--max-tokens=30", "--seed=6"}), 0) << err_;
  EXPECT_NE(out_, first);
}

TEST_F(GenerateCommandTest, TheEnvironmentSetsCommonFlags) {
  ASSERT_EQ(RunIds({"--prompt-ids=1,2,3", "--max-tokens=30", "--seed=5"}), 0) << err_;
  const std::string expected = out_;
  ASSERT_EQ(setenv("KVM_MODEL", Golden("kvm_sqrt").c_str(), 1), 0);
  ASSERT_EQ(setenv("KVM_SEED", "5", 1), 0);
  EXPECT_EQ(Run({"generate", "--prompt-ids=1,2,3", "--max-tokens=30", "--threads=1"}), 0) << err_;
  EXPECT_EQ(out_, expected);
  ASSERT_EQ(setenv("KVM_SEED", "five", 1), 0);
  EXPECT_EQ(Run({"generate", "--prompt-ids=1,2,3"}), 2);
  EXPECT_THAT(err_, HasSubstr("KVM_SEED=five: expected an integer of at least 0"));
  EXPECT_EQ(Run({"generate", "--seed=18446744073709551615"}), 2);
  EXPECT_THAT(err_, HasSubstr("--seed=18446744073709551615: expected an integer from 0 to 9223372036854775807"));
  ASSERT_EQ(unsetenv("KVM_MODEL"), 0);
  ASSERT_EQ(unsetenv("KVM_SEED"), 0);
}

TEST_F(GenerateCommandTest, RandomWeightsAreSaidToBeRandom) {
  ASSERT_EQ(RunText({"--prompt=In the beginning", "--max-tokens=5"}), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("drawing random weights with seed 0"));
  EXPECT_THAT(err_, HasSubstr("prompt: 3 tokens"));
  EXPECT_GT(out_.size(), 1u);
}

TEST_F(GenerateCommandTest, EndsBeforeAStopThatTokensStraddle) {
  ASSERT_EQ(RunText({"--prompt=In", "--max-tokens=40", "--temperature=0", "--repetition-penalty=1.5"}), 0) << err_;
  const std::string all = out_;
  ASSERT_GT(all.size(), 24u);
  const std::string stop = all.substr(10, 9);
  ASSERT_EQ(
      RunText({"--prompt=In", "--max-tokens=40", "--temperature=0", "--repetition-penalty=1.5", "--stop=" + stop}), 0)
      << err_;
  EXPECT_EQ(out_, all.substr(0, all.find(stop)) + "\n");
}

TEST_F(GenerateCommandTest, PaddingOfTheVocabularyIsNeverDrawn) {
  WriteAll(Path("tokenizer.json"), R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
      "decoder": {"type": "ByteLevel"}, "added_tokens": []})");
  // All but two of the model's 64 tokens are padding.
  ASSERT_EQ(RunIds({"--prompt=ab", "--tokenizer=" + Path("tokenizer.json"), "--max-tokens=200", "--temperature=100"}),
            0)
      << err_;
  EXPECT_EQ(out_.size(), 201u);
  EXPECT_EQ(out_.find_first_not_of("ab"), 200u);
  EXPECT_THAT(err_, HasSubstr("prompt: 2 tokens"));
}

// In generation_config.json, and wherever converting takes it.
TEST_F(GenerateCommandTest, TheModelsFilesSayWhereTextsEnd) {
  const std::string model = Path("model");
  ASSERT_EQ(Run({"convert", Golden("kvm_sqrt"), model}), 0) << err_;
  const auto generate = [this](const std::string& path) {
    EXPECT_EQ(Run({"generate", "--model=" + path, "--prompt-ids=1,2,3", "--max-tokens=8", "--seed=7"}), 0) << err_;
    return out_;
  };
  const std::string all = generate(model);
  const std::vector<std::string> ids = absl::StrSplit(absl::StripAsciiWhitespace(all), ' ');
  ASSERT_EQ(ids.size(), 8u);
  const std::string& end = ids[3];
  const size_t first = static_cast<size_t>(std::find(ids.begin(), ids.end(), end) - ids.begin());
  const std::string expected =
      absl::StrCat(absl::StrJoin(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(first), " "), "\n");
  WriteAll(model + "/generation_config.json", absl::StrCat(R"({"eos_token_id": [)", end, R"(, 1000], "top_k": 5})"));
  EXPECT_EQ(generate(model), expected);
  for (const char* name : {"a.kvm", "a.safetensors", "folder"}) {
    ASSERT_EQ(Run({"convert", model, Path(name)}), 0) << err_;
    EXPECT_EQ(generate(Path(name)), expected) << name;
  }
  ASSERT_EQ(Run({"convert", Path("a.kvm"), Path("again")}), 0) << err_;
  EXPECT_EQ(generate(Path("again")), expected);
  ASSERT_EQ(Run({"convert", model, Path("ours"), "--to=folder"}), 0) << err_;
  EXPECT_EQ(generate(Path("ours")), expected);
  WriteAll(model + "/generation_config.json", R"({"eos_token_id": "</s>"})");
  EXPECT_EQ(generate(model), all);
  EXPECT_THAT(err_, HasSubstr("generation_config.json: eos_token_id is \"</s>\""));
}

TEST_F(GenerateCommandTest, RefusesBadPrompts) {
  EXPECT_EQ(RunText({"--prompt="}), 1);
  EXPECT_THAT(err_, HasSubstr("--prompt: the prompt is empty"));
  WriteAll(Path("empty"), "");
  EXPECT_EQ(RunText({"--prompt-file=" + Path("empty")}), 1);
  EXPECT_EQ(RunText({"--prompt-file=absent"}), 1);
  EXPECT_EQ(RunText({"--prompt=\xff"}), 1);
  EXPECT_EQ(RunIds({"--prompt-ids=1,64"}), 1);
  EXPECT_THAT(err_, HasSubstr("prompt token 1 is 64; expected 0 to 63"));
  EXPECT_EQ(RunIds({"--prompt-ids="}), 2);
  EXPECT_EQ(RunIds({"--prompt=x"}), 1);
  EXPECT_THAT(err_, HasSubstr("no tokenizer in this model; name one with --tokenizer"));
  EXPECT_EQ(RunIds({}), 2);
  EXPECT_EQ(RunIds({"--prompt=x", "--prompt-ids=1"}), 2);
  EXPECT_EQ(out_, "");
}

TEST_F(GenerateCommandTest, ATokenizerThatIsTooLargeIsNamedWithBothSizes) {
  EXPECT_EQ(RunIds({"--prompt=Hello world", "--tokenizer=" + Gpt2()}), 1);
  EXPECT_THAT(err_, HasSubstr("the tokenizer has 50257 tokens"));
  EXPECT_THAT(err_, HasSubstr("vocabulary has 64"));
}

TEST_F(GenerateCommandTest, RefusesBadOptions) {
  EXPECT_EQ(RunIds({"--prompt-ids=1", "--top-p=0"}), 2);
  EXPECT_THAT(err_, HasSubstr("--top-p=0: expected a number above 0 and at most 1"));
  EXPECT_EQ(RunIds({"--prompt-ids=1", "--temperature=-1"}), 2);
  EXPECT_THAT(err_, HasSubstr("--temperature=-1"));
  EXPECT_EQ(RunIds({"--prompt-ids=1", "--stop=x"}), 2);
  EXPECT_EQ(Run({"generate", "--prompt-ids=1"}), 2);
  EXPECT_THAT(err_, HasSubstr("--model is missing"));
  EXPECT_EQ(Run({"generate", "--prompt-ids=1", "--model=" + Path("absent.textproto")}), 1);
}

TEST_F(GenerateCommandTest, CtrlCEndsIt) {
  interrupted_ = true;
  EXPECT_EQ(RunIds({"--prompt-ids=1,2,3"}), 130);
  EXPECT_THAT(err_, Not(HasSubstr("generated")));
}

}  // namespace
}  // namespace kvm
