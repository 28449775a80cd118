#include "tools/cli/machine.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/cli/format.h"

namespace kvm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CheckFitsInMemory, ComparesWithWhatIsAvailable) {
  const int64_t memory = PhysicalMemory();
  ASSERT_GT(memory, 0);
  EXPECT_TRUE(CheckFitsInMemory("the rows", 1e6, "take fewer", 1000000).ok());
  for (const double bytes : {1e6 + 1, 1e30}) {
    const absl::Status status = CheckFitsInMemory("the rows", bytes, "take fewer", 1000000);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("976.6 KiB"), HasSubstr("available; take fewer")));
  }
  EXPECT_THAT(std::string(CheckFitsInMemory("the rows", 2.0 * static_cast<double>(memory), "").message()),
              HasSubstr("the rows take " + FormatBytes(2 * memory)));
  EXPECT_TRUE(CheckFitsInMemory("the rows", 1e30, "take fewer", 0).ok());
}

TEST(AvailableMemory, IsPartOfTheMachines) {
  EXPECT_GT(AvailableMemory(), 0);
  EXPECT_LE(AvailableMemory(), UsableMemory());
  EXPECT_LE(UsableMemory(), PhysicalMemory());
}

TEST(ProcessorName, IsOneLineOfText) {
  EXPECT_FALSE(ProcessorName().empty());
  EXPECT_EQ(ProcessorName().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace kvm
