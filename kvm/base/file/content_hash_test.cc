#include "kvm/base/file/content_hash.h"

#include <cstdint>
#include <string>

#include "gtest/gtest.h"

namespace kvm {
namespace {

uint64_t HashOf(const std::string& bytes) {
  ContentHash hash;
  hash.Add(bytes);
  return hash.Value();
}

// The expected values come from a separate program written after docs/formats/packed.md.
TEST(ContentHash, IsAsDocumented) {
  EXPECT_EQ(HashOf(""), 0x58c8bd8350d538cau);
  EXPECT_EQ(HashOf("a"), 0x047cb89ac7d57678u);
  EXPECT_EQ(HashOf(std::string(31, 'a')), 0x80069e1cc7558183u);
  EXPECT_EQ(HashOf(std::string(32, 'a')), 0x076579b421257877u);
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  EXPECT_EQ(HashOf(all), 0xd3aacc33a369f188u);
}

TEST(ContentHash, PiecesDoNotMatter) {
  std::string bytes;
  for (int i = 0; i < 200; ++i) bytes.push_back(static_cast<char>(i * 7));
  for (size_t first : {0, 1, 31, 32, 33, 64, 150, 200}) {
    for (size_t second : {0, 1, 40}) {
      ContentHash hash;
      hash.Add(bytes.substr(0, first));
      hash.Add(bytes.substr(first, second));
      if (first + second < bytes.size()) hash.Add(bytes.substr(first + second));
      EXPECT_EQ(hash.Value(), HashOf(bytes)) << first << " " << second;
    }
  }
}

TEST(ContentHash, SeesEveryBit) {
  const std::string bytes(70, 'x');
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ 1 << bit);
      EXPECT_NE(HashOf(changed), HashOf(bytes)) << i << " " << bit;
    }
  }
  EXPECT_NE(HashOf(bytes + std::string(1, '\0')), HashOf(bytes));
}

}  // namespace
}  // namespace kvm
