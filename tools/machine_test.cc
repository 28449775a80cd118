#include "tools/machine.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/format.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

TEST(CheckFitsInMemory, ComparesWithTheMachine) {
  const int64_t memory = PhysicalMemory();
  ASSERT_GT(memory, 0);
  EXPECT_TRUE(CheckFitsInMemory("the rows", static_cast<double>(memory), "take fewer").ok());
  for (const double bytes : {2.0 * static_cast<double>(memory), 1e30}) {
    const absl::Status status = CheckFitsInMemory("the rows", bytes, "take fewer");
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(" and this machine has " + FormatBytes(memory) + "; take fewer"));
  }
  EXPECT_THAT(std::string(CheckFitsInMemory("the rows", 2.0 * static_cast<double>(memory), "").message()),
              HasSubstr("the rows take " + FormatBytes(2 * memory)));
}

TEST(ProcessorName, IsOneLineOfText) {
  EXPECT_FALSE(ProcessorName().empty());
  EXPECT_EQ(ProcessorName().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace kvm
