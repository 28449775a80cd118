#include "tools/output_paths.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class OutputPathsTest : public ::testing::Test {
 protected:
  OutputPathsTest() {
    std::string name = testing::TempDir() + "/pathsXXXXXX";
    EXPECT_NE(mkdtemp(&name[0]), nullptr);
    folder_ = name + "/";
    std::ofstream(folder_ + "a") << "a";
    std::ofstream(folder_ + "b") << "a";
    fs::create_directory(folder_ + "sub");
    fs::create_symlink("a", folder_ + "to_a");
    fs::create_symlink("to_a", folder_ + "to_to_a");
    fs::create_symlink("absent", folder_ + "dangling");
    fs::create_symlink("sub", folder_ + "to_sub");
    fs::create_hard_link(folder_ + "a", folder_ + "hard_a");
  }

  bool Same(const std::string& a, const std::string& b) {
    const bool same = IsSameFile(folder_ + a, folder_ + b);
    EXPECT_EQ(IsSameFile(folder_ + b, folder_ + a), same);
    return same;
  }

  std::string folder_;
};

TEST_F(OutputPathsTest, SeesOneFileBehindTwoNames) {
  for (const char* name : {"a", "./a", "sub/../a", "to_a", "to_to_a", "to_sub/../a", "hard_a"}) {
    EXPECT_TRUE(Same("a", name)) << name;
  }
  for (const char* name : {"absent", "./absent", "dangling", "sub/../absent"}) {
    EXPECT_TRUE(Same("absent", name)) << name;
  }
  EXPECT_TRUE(Same("sub/new", "to_sub/new"));
}

TEST_F(OutputPathsTest, TellsFilesApart) {
  for (const char* name : {"b", "absent", "dangling", "sub", "sub/a", "absent/a"})
    EXPECT_FALSE(Same("a", name)) << name;
  EXPECT_FALSE(Same("absent", "sub/absent"));
  EXPECT_FALSE(Same("absent", "absent2"));
}

TEST_F(OutputPathsTest, OutputsInAModelsFolder) {
  for (const char* out : {"sub/x", "sub/x/y", "to_sub/x", "./sub/../sub/x"}) {
    for (const char* model : {"sub", "to_sub", "sub/", "sub/."}) {
      const absl::Status status = CheckOutsideModel(folder_ + out, folder_ + model);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << out << " " << model;
      EXPECT_THAT(std::string(status.message()), HasSubstr(folder_ + out + " lies in the folder of the model"));
    }
  }
  for (const char* out : {"sub", "x", "sub2", "sub.kvm", "sub/../x", "to_a"}) {
    EXPECT_TRUE(CheckOutsideModel(folder_ + out, folder_ + "sub").ok()) << out;
  }
  // Beside a file.
  EXPECT_TRUE(CheckOutsideModel(folder_ + "x", folder_ + "a").ok());
}

TEST_F(OutputPathsTest, FoldersThatCanBeMade) {
  for (const char* name : {"sub", "new", "new/and/deeper", "to_sub/new", ""}) {
    EXPECT_TRUE(CheckCanMakeFolder(folder_ + name).ok()) << CheckCanMakeFolder(folder_ + name);
  }
  for (const char* name : {"a", "a/new", "to_a/new"}) {
    const absl::Status status = CheckCanMakeFolder(folder_ + name);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is no folder"));
  }
}

}  // namespace
}  // namespace kvm
