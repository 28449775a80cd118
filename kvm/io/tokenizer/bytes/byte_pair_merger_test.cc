#include "kvm/io/tokenizer/bytes/byte_pair_merger.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Every byte is its own id.
BytePairMerger BytesAlone() {
  std::array<int32_t, 256> byte_ids;
  for (int32_t i = 0; i < 256; ++i) byte_ids[i] = i;
  return BytePairMerger(byte_ids);
}

std::vector<int32_t> Encode(const BytePairMerger& merger, const std::string& word) {
  BytePairMerger::Scratch scratch;
  std::vector<int32_t> ids;
  merger.Encode(word, &scratch, &ids);
  return ids;
}

TEST(BytePairMerger, LeavesBytesWithoutMergesAlone) {
  const BytePairMerger merger = BytesAlone();
  EXPECT_THAT(Encode(merger, ""), IsEmpty());
  EXPECT_THAT(Encode(merger, "a"), ElementsAre('a'));
  EXPECT_THAT(Encode(merger, "a\xff"), ElementsAre('a', 255));
}

TEST(BytePairMerger, TakesTheEarlierMergeWhereverItStands) {
  BytePairMerger merger = BytesAlone();
  ASSERT_TRUE(merger.AddMerge('b', 'c', 300));
  ASSERT_TRUE(merger.AddMerge('a', 'b', 301));
  EXPECT_THAT(Encode(merger, "abc"), ElementsAre('a', 300));
  EXPECT_THAT(Encode(merger, "abab"), ElementsAre(301, 301));
  EXPECT_THAT(Encode(merger, "ababc"), ElementsAre(301, 'a', 300));
}

TEST(BytePairMerger, TakesTheLeftOfTwoOverlappingPairs) {
  BytePairMerger merger = BytesAlone();
  ASSERT_TRUE(merger.AddMerge('a', 'a', 300));
  EXPECT_THAT(Encode(merger, "aaa"), ElementsAre(300, 'a'));
  EXPECT_THAT(Encode(merger, "aaaaa"), ElementsAre(300, 300, 'a'));
}

TEST(BytePairMerger, MergesWhatWasMerged) {
  BytePairMerger merger = BytesAlone();
  ASSERT_TRUE(merger.AddMerge('a', 'b', 300));
  ASSERT_TRUE(merger.AddMerge('c', 'd', 301));
  ASSERT_TRUE(merger.AddMerge(300, 301, 302));
  ASSERT_TRUE(merger.AddMerge(302, 302, 303));
  EXPECT_THAT(Encode(merger, "abcd"), ElementsAre(302));
  EXPECT_THAT(Encode(merger, "xabcdabcdabcd"), ElementsAre('x', 303, 302));
  EXPECT_THAT(Encode(merger, "abcabcd"), ElementsAre(300, 'c', 302));
}

TEST(BytePairMerger, DropsPairsWhoseSymbolWasTaken) {
  BytePairMerger merger = BytesAlone();
  ASSERT_TRUE(merger.AddMerge('b', 'c', 300));
  ASSERT_TRUE(merger.AddMerge('a', 'b', 301));  // its 'b' is gone by then
  ASSERT_TRUE(merger.AddMerge('c', 'd', 302));  // its 'c' is
  ASSERT_TRUE(merger.AddMerge('a', 300, 303));
  EXPECT_THAT(Encode(merger, "abcd"), ElementsAre(303, 'd'));
}

TEST(BytePairMerger, KeepsTheFirstMergeOfAPair) {
  BytePairMerger merger = BytesAlone();
  ASSERT_TRUE(merger.AddMerge('a', 'b', 300));
  EXPECT_FALSE(merger.AddMerge('a', 'b', 301));
  EXPECT_THAT(Encode(merger, "ab"), ElementsAre(300));
}

TEST(BytePairMerger, ReusesScratchAndAppends) {
  BytePairMerger merger = BytesAlone();
  ASSERT_TRUE(merger.AddMerge('a', 'b', 300));
  BytePairMerger::Scratch scratch;
  std::vector<int32_t> ids = {7};
  merger.Encode("abcab", &scratch, &ids);
  merger.Encode("ba", &scratch, &ids);
  merger.Encode("", &scratch, &ids);
  EXPECT_THAT(ids, ElementsAre(7, 300, 'c', 300, 'b', 'a'));
}

TEST(BytePairMergerDeathTest, ChecksThatEveryByteHasAToken) {
  std::array<int32_t, 256> ids;
  ids.fill(-1);
  ids['a'] = 0;
  const BytePairMerger merger(ids);
  BytePairMerger::Scratch scratch;
  std::vector<int32_t> tokens;
  merger.Encode("aa", &scratch, &tokens);
  EXPECT_EQ(tokens, std::vector<int32_t>({0, 0}));
  EXPECT_DEATH(merger.Encode("ab", &scratch, &tokens), "Encode: the token of a byte is -1, expected at least 0");
}

}  // namespace
}  // namespace kvm
