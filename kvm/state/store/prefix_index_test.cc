#include "kvm/state/store/prefix_index.h"

#include <numeric>
#include <unordered_set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Tokens first, first + 1, …
std::vector<int32_t> Counting(int64_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

void Add(PrefixIndex& index, const std::vector<int32_t>& tokens, uint64_t id) {
  index.Add(static_cast<int64_t>(tokens.size()), HashTokens(tokens), id);
}

TEST(PrefixIndexTest, HashOfEveryBeginningIsThatOfItsTokens) {
  const std::vector<int32_t> tokens = Counting(20);
  const std::vector<uint64_t> hashes = PrefixHashes(tokens);
  ASSERT_EQ(hashes.size(), 21);
  for (size_t p = 0; p <= tokens.size(); ++p) EXPECT_EQ(hashes[p], HashTokens(absl::MakeSpan(tokens).first(p)));
}

TEST(PrefixIndexTest, HashesOfManyBeginningsDiffer) {
  constexpr int64_t kCount = 50'000;
  std::unordered_set<uint64_t> seen;
  const std::vector<std::vector<int32_t>> sequences = {
      Counting(kCount), Counting(kCount, 1), std::vector<int32_t>(kCount, 7), std::vector<int32_t>(kCount, -1)};
  for (const auto& tokens : sequences) {
    for (uint64_t hash : PrefixHashes(tokens)) seen.insert(hash);
  }
  EXPECT_EQ(seen.size(), 4 * kCount + 1);  // the empty beginning is common to all
}

TEST(PrefixIndexTest, CandidatesComeLongestFirst) {
  PrefixIndex index;
  Add(index, Counting(4), 1);
  Add(index, Counting(12), 2);
  Add(index, Counting(8), 3);
  Add(index, Counting(8, 100), 4);
  EXPECT_THAT(index.Candidates(PrefixHashes(Counting(20))), ElementsAre(2, 3, 1));
  EXPECT_THAT(index.Candidates(PrefixHashes(Counting(12))), ElementsAre(2, 3, 1));
  EXPECT_THAT(index.Candidates(PrefixHashes(Counting(11))), ElementsAre(3, 1));
  EXPECT_THAT(index.Candidates(PrefixHashes(Counting(9, 100))), ElementsAre(4));
  EXPECT_THAT(index.Candidates(PrefixHashes(Counting(3))), IsEmpty());
  EXPECT_THAT(index.Candidates(PrefixHashes({})), IsEmpty());
}

TEST(PrefixIndexTest, BothOfOneHashAreFound) {
  PrefixIndex index;
  index.Add(3, HashTokens(Counting(3)), 7);
  index.Add(3, HashTokens(Counting(3)), 8);
  EXPECT_THAT(index.Candidates(PrefixHashes(Counting(3))), UnorderedElementsAre(7, 8));
  EXPECT_THAT(index.At(3, HashTokens(Counting(3))), UnorderedElementsAre(7, 8));
  EXPECT_THAT(index.At(3, HashTokens(Counting(4))), IsEmpty());
  EXPECT_THAT(index.At(4, HashTokens(Counting(3))), IsEmpty());
  index.Remove(3, HashTokens(Counting(3)), 7);
  EXPECT_THAT(index.Candidates(PrefixHashes(Counting(3))), ElementsAre(8));
}

TEST(PrefixIndexTest, OnlyWhatWasForgottenIsRemembered) {
  PrefixIndex index;
  Add(index, Counting(4), 1);
  Add(index, Counting(8), 2);
  index.Remove(8, HashTokens(Counting(8)), 2);
  EXPECT_FALSE(index.Forgot(PrefixHashes(Counting(8))));
  index.Forget(4, HashTokens(Counting(4)), 1);
  EXPECT_TRUE(index.empty());
  EXPECT_TRUE(index.Forgot(PrefixHashes(Counting(4))));
  EXPECT_TRUE(index.Forgot(PrefixHashes(Counting(8))));
  EXPECT_FALSE(index.Forgot(PrefixHashes(Counting(3))));
  EXPECT_FALSE(index.Forgot(PrefixHashes(Counting(8, 1))));
}

TEST(PrefixIndexTest, MemoryOfTheForgottenIsBounded) {
  PrefixIndex index;
  for (int32_t i = 0; i <= static_cast<int32_t>(PrefixIndex::kRemembered); ++i) {
    Add(index, {i}, 1);
    index.Forget(1, HashTokens({i}), 1);
  }
  EXPECT_FALSE(index.Forgot(PrefixHashes({0})));
  EXPECT_TRUE(index.Forgot(PrefixHashes({1})));
}

}  // namespace
}  // namespace kvm
