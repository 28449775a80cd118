#include "kvm/base/file/path_check.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class PathCheckTest : public ::testing::Test {
 protected:
  PathCheckTest() {
    std::string name = testing::TempDir() + "/checkXXXXXX";
    EXPECT_NE(mkdtemp(&name[0]), nullptr);
    folder_ = name + "/";
    std::ofstream(folder_ + "file") << "a";
    fs::create_symlink("file", folder_ + "good");
    fs::create_symlink("../blobs/gone", folder_ + "broken");
    fs::create_symlink("circle", folder_ + "circle");
  }

  std::string folder_;
};

TEST_F(PathCheckTest, WhatIsThere) {
  for (const char* name : {"", "file", "good"}) {
    EXPECT_TRUE(CheckPathExists(folder_ + name).ok()) << name;
    EXPECT_TRUE(NameExists(folder_ + name)) << name;
  }
}

TEST_F(PathCheckTest, WhatIsNot) {
  for (const char* name : {"absent", "absent/x", "file/x"}) {
    const absl::Status status = CheckPathExists(folder_ + name);
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_EQ(status.message(), folder_ + name + ": no such file or folder");
    EXPECT_FALSE(NameExists(folder_ + name));
  }
}

TEST_F(PathCheckTest, BrokenLinksAreNamed) {
  const absl::Status broken = CheckPathExists(folder_ + "broken");
  EXPECT_EQ(broken.code(), absl::StatusCode::kFailedPrecondition) << broken;
  EXPECT_EQ(broken.message(), folder_ + "broken: a link to ../blobs/gone, which is not there");
  const absl::Status circle = CheckPathExists(folder_ + "circle");
  EXPECT_EQ(circle.code(), absl::StatusCode::kFailedPrecondition) << circle;
  EXPECT_EQ(circle.message(), folder_ + "circle: a link to circle that leads in a circle");
  EXPECT_TRUE(NameExists(folder_ + "broken"));
  EXPECT_TRUE(NameExists(folder_ + "circle"));
}

TEST_F(PathCheckTest, OtherErrorsKeepTheirName) {
  EXPECT_THAT(std::string(CheckPathExists(folder_ + std::string(300, 'x')).message()), HasSubstr("too long"));
}

}  // namespace
}  // namespace kvm
