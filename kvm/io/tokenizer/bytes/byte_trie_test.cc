#include "kvm/io/tokenizer/bytes/byte_trie.h"

#include <string>

#include "gtest/gtest.h"

namespace kvm {
namespace {

void ExpectLongest(const ByteTrie& trie, absl::string_view text, size_t length, int32_t value) {
  const ByteTrie::Match match = trie.Longest(text);
  EXPECT_EQ(match.length, length) << text;
  EXPECT_EQ(match.value, value) << text;
}

TEST(ByteTrie, FindsTheLongest) {
  const ByteTrie trie({{"abcd", 7}, {"a", 0}, {"abc", 3}, {"b", 1}, {"bxy", 2}});
  ExpectLongest(trie, "abcdef", 4, 7);
  ExpectLongest(trie, "abcd", 4, 7);
  ExpectLongest(trie, "abcx", 3, 3);
  ExpectLongest(trie, "abx", 1, 0);  // back to what ended before
  ExpectLongest(trie, "bx", 1, 1);
  ExpectLongest(trie, "xb", 0, -1);
  ExpectLongest(trie, "", 0, -1);
}

TEST(ByteTrie, KnowsAllBytes) {
  std::vector<std::pair<std::string, int32_t>> strings;
  for (int i = 0; i < 256; ++i) {
    strings.emplace_back(std::string(1, static_cast<char>(i)), i);
    strings.emplace_back(std::string(3, static_cast<char>(i)), 1000 + i);
  }
  const ByteTrie trie(strings);
  for (int i = 0; i < 256; ++i) {
    const std::string text(4, static_cast<char>(i));
    ExpectLongest(trie, text, 3, 1000 + i);
    ExpectLongest(trie, text.substr(0, 2), 1, i);
  }
}

TEST(ByteTrie, OfNothingFindsNothing) { ExpectLongest(ByteTrie({}), "a", 0, -1); }

TEST(ByteTrieDeathTest, ChecksItsStrings) {
  EXPECT_DEATH(ByteTrie({{"a", 1}, {"", 2}}), "ByteTrie: expected strings that are not empty");
  EXPECT_DEATH(ByteTrie({{"a", 1}, {"b", 2}, {"a", 3}}), "ByteTrie: expected no string twice");
}

}  // namespace
}  // namespace kvm
