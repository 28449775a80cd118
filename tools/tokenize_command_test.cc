#include "tools/tokenize_command.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "testing/command_testing.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

class TokenizeCommandTest : public CommandFixture {};

// Ids from OpenAI's published GPT-2 vocabulary.
TEST_F(TokenizeCommandTest, PrintsIds) {
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + Gpt2(), "--text=Hello world<|endoftext|>"}), 0);
  EXPECT_EQ(out_, "15496 995 50256\n");
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + Gpt2(), "--json", "--text", "Hello world"}), 0);
  EXPECT_EQ(out_, "{\"ids\":[15496,995]}\n");
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + Gpt2(), "--text="}), 0);
  EXPECT_EQ(out_, "\n");
}

TEST_F(TokenizeCommandTest, ReadsFilesAndStandardInput) {
  WriteAll(Path("text"), "Hello world");
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + Gpt2(), "--text-file=" + Path("text")}), 0);
  EXPECT_EQ(out_, "15496 995\n");
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + Gpt2()}, "Hello world"), 0);
  EXPECT_EQ(out_, "15496 995\n");
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + Gpt2(), "--text-file=-"}, "Hello"), 0);
  EXPECT_EQ(out_, "15496\n");
}

TEST_F(TokenizeCommandTest, OpensAWorldVocabulary) {
  std::filesystem::create_directories(Path("model"));
  const std::string vocabulary = Path("model/rwkv_vocab_test.txt");
  WriteAll(vocabulary, "1 'a' 1\n2 'b' 1\n3 'ab' 2\n");
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + vocabulary, "--text=aabb"}), 0);
  EXPECT_EQ(out_, "1 3 2\n");
  EXPECT_EQ(Run({"detokenize", "--model=" + Path("model"), "1", "0", "3"}), 0);
  EXPECT_EQ(out_, "aab");
}

TEST_F(TokenizeCommandTest, NotesWhatTheTokenizersFileAsksForInVain) {
  WriteAll(Path("t.json"),
           R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "truncation": {"max_length": 1},
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}})");
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + Path("t.json"), "--text=aa"}), 0);
  EXPECT_EQ(out_, "0 0\n");
  EXPECT_THAT(err_, HasSubstr("t.json: truncation is ignored\n"));
}

TEST_F(TokenizeCommandTest, PutsTheTemplateAroundOnDemand) {
  WriteAll(Path("t.json"), R"({"model": {"type": "BPE", "vocab": {"a": 0, "<s>": 1, "</s>": 2}, "merges": []},
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
      "post_processor": {"type": "TemplateProcessing", "special_tokens": {"s": {"ids": [1]}, "e": {"ids": [2]}},
          "single": [{"SpecialToken": {"id": "s"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "e"}}]}})");
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + Path("t.json"), "--text=aa"}), 0);
  EXPECT_EQ(out_, "0 0\n");
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + Path("t.json"), "--text=aa", "--template"}), 0);
  EXPECT_EQ(out_, "1 0 0 2\n");
}

TEST_F(TokenizeCommandTest, WritesAShard) {
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + Gpt2(), "--text=Hello world", "--shards=" + Path("shard")}), 0);
  EXPECT_EQ(out_, "");
  const std::string shard = ReadAll(Path("shard"));
  ASSERT_EQ(shard.size(), 256 * sizeof(int32_t) + 2 * sizeof(uint16_t));
  uint16_t ids[2];
  std::memcpy(ids, shard.data() + 256 * sizeof(int32_t), sizeof(ids));
  EXPECT_EQ(ids[0], 15496);
  EXPECT_EQ(ids[1], 995);
}

TEST_F(TokenizeCommandTest, RefusesBadInput) {
  EXPECT_EQ(Run({"tokenize", "--text=x"}), 2);
  EXPECT_THAT(err_, HasSubstr("--tokenizer=FILE or --model=DIR is missing"));
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + Gpt2(), "--text=x", "--text-file=y"}), 2);
  EXPECT_EQ(Run({"tokenize", "--tokenizer=absent.json", "--text=x"}), 1);
  EXPECT_THAT(err_, HasSubstr("absent.json"));
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + Gpt2(), "--text-file=absent.txt"}), 1);
  EXPECT_THAT(err_, HasSubstr("absent.txt"));
  EXPECT_EQ(Run({"tokenize", "--model=" + Golden("kvm_sqrt"), "--text=x"}), 1);
  EXPECT_THAT(err_, HasSubstr("no tokenizer.json and no rwkv_vocab*.txt in this folder"));
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + Gpt2(), "--text=a\xff"}), 1);
  EXPECT_THAT(err_, HasSubstr("--text: "));
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + Gpt2(), "--text=x", "--shards=absent/folder/shard"}), 1);
}

TEST_F(TokenizeCommandTest, ShardsAreNotTheInput) {
  WriteAll(Path("text"), "Hello");
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + Gpt2(), "--text-file=" + Path("text"), "--shards=" + Path("text")}), 2);
  EXPECT_THAT(err_, HasSubstr("is the text itself"));
  EXPECT_EQ(ReadAll(Path("text")), "Hello");
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + Path("text"), "--text=x", "--shards=" + Path("text")}), 2);
  EXPECT_THAT(err_, HasSubstr("is the tokenizer itself"));
  const std::string model = Path("model");
  std::filesystem::create_directories(model);
  for (const char* file : {"/tokenizer.json", "/model.safetensors", "/config.json"}) {
    WriteAll(model + file, ReadAll(Gpt2()));
    EXPECT_EQ(Run({"tokenize", "--model=" + model, "--text=x", "--shards=" + model + file}), 2);
    EXPECT_THAT(err_, HasSubstr("--shards=" + model + file + " is a file of --model=" + model));
    EXPECT_EQ(ReadAll(model + file) == ReadAll(Gpt2()), true);
  }
  EXPECT_EQ(Run({"tokenize", "--model=" + model + "/absent", "--text=x"}), 1);
  EXPECT_THAT(err_, HasSubstr("/absent: no such file or folder"));
  EXPECT_EQ(Run({"tokenize", "--tokenizer=" + Gpt2(), "--text=x", "--shards="}), 2);
  EXPECT_THAT(err_, HasSubstr("--shards needs a value"));
}

TEST_F(TokenizeCommandTest, DetokenizeTakesIdsInAllForms) {
  EXPECT_EQ(Run({"detokenize", "--tokenizer=" + Gpt2(), "--ids=15496,995"}), 0);
  EXPECT_EQ(out_, "Hello world");
  EXPECT_EQ(Run({"detokenize", "--tokenizer=" + Gpt2(), "15496", "995"}), 0);
  EXPECT_EQ(out_, "Hello world");
  EXPECT_EQ(Run({"detokenize", "--tokenizer=" + Gpt2(), "--json"}, "[15496, 995]\n"), 0);
  EXPECT_EQ(out_, "{\"text\":\"Hello world\"}\n");
}

TEST_F(TokenizeCommandTest, DetokenizeRefusesBadIds) {
  EXPECT_EQ(Run({"detokenize", "--tokenizer=" + Gpt2(), "15496", "fish"}), 1);
  EXPECT_THAT(err_, HasSubstr("token id 1 is 'fish'"));
  EXPECT_EQ(Run({"detokenize", "--tokenizer=" + Gpt2(), "50257"}), 1);
  EXPECT_THAT(err_, HasSubstr("50257"));
  EXPECT_EQ(Run({"detokenize", "--tokenizer=" + Gpt2(), "-1"}), 1);
  EXPECT_EQ(Run({"detokenize", "--tokenizer=" + Gpt2(), "--ids=1", "2"}), 2);
}

TEST_F(TokenizeCommandTest, ThereAndBackIsTheSameText) {
  const std::string text = "In the beginning God created the heaven\n\tand the earth. \xc3\xa9\xf0\x9f\x98\x80";
  ASSERT_EQ(Run({"tokenize", "--tokenizer=" + Gpt2()}, text), 0);
  ASSERT_EQ(Run({"detokenize", "--tokenizer=" + Gpt2()}, out_), 0);
  EXPECT_EQ(out_, text);
}

}  // namespace
}  // namespace kvm
