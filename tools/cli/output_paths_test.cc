#include "tools/cli/output_paths.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/io/tokenizer/token_shards.h"
#include "kvm/kernels/tensor.h"
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

TEST_F(OutputPathsTest, WhatIsThereIsReplacedByItsKindOrByForce) {
  const auto write = [this](const char* name, const std::string& text) {
    std::ofstream(folder_ + name, std::ios::binary) << text;
    return folder_ + name;
  };
  const std::string picture = write("picture", "<svg xmlns=\"http://www.w3.org/2000/svg\">");
  const std::string rows = write("rows", "position,row\n0,1\n");
  const std::string shard = folder_ + "shard", logits = folder_ + "logits", state = folder_ + "state";
  const std::string golden = folder_ + "golden";
  ASSERT_TRUE(WriteTokenShard(shard, {1, 2, 3}).ok());
  const Tensor tensor(DType::kF32, {1});
  ASSERT_TRUE(WriteSafetensors(logits, {{"hidden_after_layer_0", tensor.view()}, {"logits", tensor.view()}}).ok());
  ASSERT_TRUE(WriteSafetensors(state, {{"cache.0.x", tensor.view()}}).ok());
  ASSERT_TRUE(WriteSafetensors(golden, {{"input_ids", tensor.view()}, {"logits", tensor.view()}}).ok());
  const std::string empty = write("empty", "");
  const std::vector<std::pair<OutputKind, std::string>> kinds = {
      {OutputKind::kPicture, picture}, {OutputKind::kRowList, rows}, {OutputKind::kTokenShard, shard},
      {OutputKind::kLogits, logits},   {OutputKind::kState, state},  {OutputKind::kSnapshot, ""},
      {OutputKind::kModel, ""}};
  for (const auto& [kind, own] : kinds) {
    EXPECT_TRUE(CheckOutput(folder_ + "absent", kind, false).ok());
    EXPECT_TRUE(CheckOutput(folder_ + "dangling", kind, false).ok());
    for (const std::string& path : {picture, rows, shard, logits, state, golden, empty, folder_ + "to_to_a"}) {
      const absl::Status status = CheckOutput(path, kind, false);
      EXPECT_EQ(status.ok(), path == own) << path << ": " << status;
      if (!status.ok()) {
        EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
        EXPECT_THAT(std::string(status.message()), HasSubstr(path + ": exists already"));
        EXPECT_THAT(std::string(status.message()), HasSubstr("--force"));
      }
      EXPECT_TRUE(CheckOutput(path, kind, true).ok()) << path;
    }
    for (const std::string& path : {folder_ + "sub", std::string("/dev/null")}) {
      EXPECT_FALSE(CheckOutput(path, kind, true).ok()) << path;
    }
  }
}

}  // namespace
}  // namespace kvm
