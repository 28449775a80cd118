#include "kvm/io/tokenizer/tokenizer_files.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kvm/base/file/atomic_file.h"

namespace kvm {
namespace {

constexpr char kFolder[] = "testing/data/tokenizers/";

TEST(FindTokenizerFile, PrefersJsonThenTheFirstVocabulary) {
  const std::string folder = testing::TempDir() + "/folder";
  std::filesystem::create_directories(folder);
  EXPECT_EQ(FindTokenizerFile(folder), "");
  EXPECT_EQ(FindTokenizerFile(folder + "/absent"), "");
  for (const char* name : {"/vocab.txt", "/rwkv_vocab_v2.txt", "/rwkv_vocab_v1.txt"}) {
    ASSERT_TRUE(WriteFileAtomically(folder + name, "1 'a' 1\n").ok());
  }
  EXPECT_EQ(FindTokenizerFile(folder), folder + "/rwkv_vocab_v1.txt");
  ASSERT_TRUE(WriteFileAtomically(folder + "/tokenizer.json", "{}").ok());
  EXPECT_EQ(FindTokenizerFile(folder), folder + "/tokenizer.json");
}

TEST(TokenizerFileName, IsOneThatIsFound) {
  EXPECT_EQ(*TokenizerFileName("absent/rwkv_vocab_v20230424.txt"), "rwkv_vocab_v20230424.txt");
  EXPECT_EQ(*TokenizerFileName("absent/tokenizer.json"), "tokenizer.json");
  EXPECT_EQ(*TokenizerFileName(absl::StrCat(kFolder, "world_vocabulary.txt")), "rwkv_vocab.txt");
  EXPECT_EQ(*TokenizerFileName(absl::StrCat(kFolder, "qwen.json")), "tokenizer.json");
  EXPECT_FALSE(TokenizerFileName("absent/other.json").ok());
}

TEST(IsWorldVocabulary, GoesByTheFirstCharacter) {
  EXPECT_TRUE(IsWorldVocabulary("1 'a' 1\n"));
  EXPECT_TRUE(
      IsWorldVocabulary("\xEF\xBB\xBF"
                        "1 'a' 1\n"));
  EXPECT_FALSE(IsWorldVocabulary("\xEF\xBB\xBF{}"));
  EXPECT_FALSE(IsWorldVocabulary(" 1 'a' 1\n"));
  EXPECT_FALSE(IsWorldVocabulary(""));
}

}  // namespace
}  // namespace kvm
