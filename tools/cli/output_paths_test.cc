#include "tools/cli/output_paths.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/cli/command_status.h"
#include "tools/cli/flag_set.h"

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

TEST_F(OutputPathsTest, FilesOfAModelAreNoOutputs) {
  FlagSet flags("test", "", "");
  std::string value;
  flags.String("model", &value, "PATH", "");
  std::ofstream(folder_ + "sub/model.safetensors.index.json")
      << R"({"weight_map": {"a": "part-1.safetensors", "b": "part-1.safetensors"}})";
  std::ofstream(folder_ + "sub/rwkv_vocab_x.txt") << "1 'a' 1";
  std::ofstream(folder_ + "a.tokenizer.json") << "{}";
  std::ofstream(folder_ + "tokenizer.json") << "{}";
  fs::create_symlink("sub/config.json", folder_ + "to_config");
  const struct {
    std::string model;
    std::vector<std::string> refused, fine;
  } cases[] = {
      {"sub",
       {"sub/config.json", "sub/stack.textproto", "sub/model.safetensors", "sub/model.safetensors.index.json",
        "sub/part-1.safetensors", "sub/tokenizer.json", "sub/rwkv_vocab_x.txt", "to_sub/config.json", "to_config"},
       {"sub/logits.safetensors", "sub/part-2.safetensors", "config.json", "model.safetensors"}},
      {"to_sub", {"sub/config.json"}, {}},
      // A file, and a folder's file, which may mean the folder.
      {"a", {"a", "to_a", "hard_a", "a.tokenizer.json"}, {"b", "config.json", "a.safetensors"}},
      {"b", {"b", "tokenizer.json"}, {"model.safetensors"}},
      {"sub/model.safetensors", {"sub/model.safetensors", "sub/config.json"}, {"sub/logits.safetensors"}},
      {"absent", {"absent"}, {"b"}},
  };
  for (const auto& c : cases) {
    for (const std::string& out : c.refused) {
      const absl::Status status = CheckNotOfModel(flags, "out", folder_ + out, folder_ + c.model);
      EXPECT_TRUE(IsUsageError(status)) << c.model << " " << out;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("--out=" + folder_ + out + " is a file of --model=" + folder_ + c.model));
    }
    for (const std::string& out : c.fine) {
      EXPECT_TRUE(CheckNotOfModel(flags, "out", folder_ + out, folder_ + c.model).ok()) << c.model << " " << out;
    }
  }
  EXPECT_TRUE(CheckNotOfModel(flags, "out", folder_ + "a", "").ok());
  EXPECT_TRUE(CheckNotOfModel(flags, "out", "", folder_ + "a").ok());
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

TEST_F(OutputPathsTest, KnowsWhatLiesInAFolder) {
  for (const char* path : {"sub/new", "to_sub/new", "to_sub/deep/new", "sub/../sub/new"}) {
    EXPECT_TRUE(IsInFolder(folder_ + path, folder_ + "to_sub")) << path;
  }
  fs::create_symlink("sub/new", folder_ + "into_sub");
  EXPECT_TRUE(IsInFolder(folder_ + "into_sub", folder_ + "sub"));
  for (const char* path : {"a", "sub", "sub/../a", "subway/a"}) {
    EXPECT_FALSE(IsInFolder(folder_ + path, folder_ + "sub")) << path;
  }
  EXPECT_FALSE(IsInFolder(folder_ + "absent/a", folder_ + "absent"));
}

TEST_F(OutputPathsTest, WhatIsThereIsNotNew) {
  EXPECT_TRUE(CheckIsNew(folder_ + "absent").ok());
  EXPECT_TRUE(CheckIsNew(folder_ + "dangling").ok());
  for (const char* path : {"a", "to_to_a"}) {
    EXPECT_EQ(CheckIsNew(folder_ + path).message(),
              folder_ + path + ": exists already; expected the name of a new file");
  }
  EXPECT_FALSE(CheckIsNew(folder_ + "sub").ok());
  EXPECT_FALSE(CheckIsNew("/dev/null").ok());
}

TEST_F(OutputPathsTest, OnlySnapshotsMayBeReplaced) {
  EXPECT_TRUE(CheckIsNewOrSnapshot(folder_ + "absent").ok());
  std::ofstream(folder_ + "empty");
  for (const char* path : {"a", "to_a", "empty"}) {
    EXPECT_THAT(std::string(CheckIsNewOrSnapshot(folder_ + path).message()),
                HasSubstr(folder_ + path + ": exists already and is no snapshot"));
  }
  EXPECT_FALSE(CheckIsNewOrSnapshot(folder_ + "sub").ok());
}

}  // namespace
}  // namespace kvm
