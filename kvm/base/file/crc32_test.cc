#include "kvm/base/file/crc32.h"

#include <string>

#include "gtest/gtest.h"

namespace kvm {
namespace {

// As zlib computes them (Python: zlib.crc32).
TEST(Crc32, KnownSums) {
  EXPECT_EQ(Crc32(""), 0u);
  EXPECT_EQ(Crc32("123456789"), 0xcbf43926u);
  EXPECT_EQ(Crc32("little"), 0x19e33d85u);
  EXPECT_EQ(Crc32("The quick brown fox jumps over the lazy dog"), 0x414fa339u);
  EXPECT_EQ(Crc32(std::string(32, '\0')), 0x190a55adu);
  EXPECT_EQ(Crc32(std::string(32, '\xff')), 0xff6cab0bu);
}

TEST(Crc32, IsTheSameInPieces) {
  const std::string text = "key-value means, one byte at a time or all at once";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(Crc32(text.substr(cut), Crc32(text.substr(0, cut))), Crc32(text)) << cut;
  }
}

}  // namespace
}  // namespace kvm
