#include "tools/cli/format.h"

#include "gtest/gtest.h"

namespace kvm {
namespace {

TEST(FormatTest, Bytes) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes(1024 * 1024 - 1), "1.0 MiB");
  EXPECT_EQ(FormatBytes(int64_t{3} << 30), "3.0 GiB");
  EXPECT_EQ(FormatBytes(INT64_MAX), "8192.0 PiB");
}

TEST(FormatTest, Counts) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatCount(-123456), "-123,456");
}

TEST(FormatTest, Contexts) {
  EXPECT_EQ(FormatContext(512), "512");
  EXPECT_EQ(FormatContext(1024), "1K");
  EXPECT_EQ(FormatContext(1025), "1,025");
  EXPECT_EQ(FormatContext(1 << 20), "1M");
}

TEST(FormatTest, SecondsAndRates) {
  EXPECT_EQ(FormatSeconds(0.0123), "12 ms");
  EXPECT_EQ(FormatSeconds(1.25), "1.2 s");
  EXPECT_EQ(FormatSeconds(245), "4 min 05 s");
  EXPECT_EQ(FormatRate(3.214), "3.21");
  EXPECT_EQ(FormatRate(45.06), "45.1");
  EXPECT_EQ(FormatRate(1234.6), "1,235");
}

TEST(FormatTest, TablesAlignColumns) {
  EXPECT_EQ(FormatTable({{"name", "n"}, {"a", "1,000"}}),
            "name      n\n"
            "a     1,000\n");
  EXPECT_EQ(FormatTable({}), "");
}

TEST(Format, OneIsSingular) {
  EXPECT_EQ(FormatCounted(1, "layer"), "1 layer");
  EXPECT_EQ(FormatCounted(0, "layer"), "0 layers");
  EXPECT_EQ(FormatCounted(2, "head"), "2 heads");
  EXPECT_EQ(FormatCounted(1234, "token"), "1,234 tokens");
}

}  // namespace
}  // namespace kvm
