#include "kvm/io/model_folder.h"

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/io/atomic_file.h"
#include "kvm/io/mapped_file.h"
#include "kvm/io/safetensors.h"
#include "kvm/kernels/tensor.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/model/initializer.h"
#include "kvm/model/stack_spec.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kGolden[] = "testing/golden/kvm_rwkv7_hybrid";

constexpr char kSpec[] = R"(
  vocab_size: 48
  width: 32
  mixers { name: "r" rwkv7 { num_heads: 2 gate_rank: 5 } }
  mixers { name: "a" attention { projections { num_heads: 2 rotary_dim: 2 value_residual: LINEAR } } }
  layers: ["r", "a"])";

class ModelFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    base_ = fs::path(::testing::TempDir()) / absl::StrCat("model_folder_", test->name());
    fs::remove_all(base_);
    fs::create_directories(base_);
    const absl::StatusOr<StackSpec> spec = ParseStackSpec(kSpec, "spec");
    ASSERT_TRUE(spec.ok()) << spec.status();
    spec_ = *spec;
    ThreadPool pool(1);
    InitializerOptions options;
    options.block_output_gain = 1;
    weights_ = InitializeWeights(spec_, options, pool);
  }
  void TearDown() override { fs::remove_all(base_); }

  std::string Path(const std::string& name) const { return (base_ / name).string(); }

  void Write(const std::string& name, const std::string& text) {
    fs::create_directories((base_ / name).parent_path());
    ASSERT_TRUE(WriteFileAtomically(Path(name), text).ok());
  }

  // A writable copy of a golden folder.
  void CopyGolden(const std::string& name) {
    fs::create_directories(Path(name));
    for (const char* file : {"config.json", "model.safetensors"}) {
      fs::copy_file(fs::path(kGolden) / file, fs::path(Path(name)) / file);
    }
  }

  // Splits model.safetensors of a folder into two shards and an index.
  void Shard(const std::string& folder) {
    const auto weights = SafetensorsFile::Open(Path(folder + "/model.safetensors"));
    ASSERT_TRUE(weights.ok());
    std::vector<NamedTensorView> shards[2];
    std::string map;
    for (const std::string& name : (*weights)->Names()) {
      const size_t shard = name.size() % 2;
      shards[shard].push_back({name, *(*weights)->Find(name)});
      absl::StrAppend(&map, map.empty() ? "" : ",", "\"", name, "\":\"shard", shard, ".safetensors\"");
    }
    ASSERT_TRUE(WriteSafetensors(Path(folder + "/shard0.safetensors"), shards[0]).ok());
    ASSERT_TRUE(WriteSafetensors(Path(folder + "/shard1.safetensors"), shards[1]).ok());
    Write(folder + "/model.safetensors.index.json",
          absl::StrCat("{\"metadata\": {\"total_size\": 1}, \"weight_map\": {", map, "}}"));
    fs::remove(Path(folder + "/model.safetensors"));
  }

  std::string OpenError(const std::string& path, absl::StatusCode code) {
    const absl::StatusOr<ModelFolder> folder = OpenModelFolder(path);
    EXPECT_EQ(folder.status().code(), code) << folder.status();
    return std::string(folder.status().message());
  }

  fs::path base_;
  StackSpec spec_;
  std::unique_ptr<WeightSource> weights_;
};

TEST_F(ModelFolderTest, OpensHuggingFaceFolders) {
  const absl::StatusOr<ModelFolder> folder = OpenModelFolder(kGolden);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(folder->spec.layers_size(), 4);
  EXPECT_EQ(folder->spec.mixers(1).rwkv7().gate_rank(), 32);
  EXPECT_EQ(folder->unused_config.count("use_l2wrap"), 1u);
  EXPECT_EQ(folder->tokenizer_path, "");
}

TEST_F(ModelFolderTest, OpensSymbolicLinks) {
  CopyGolden("real");
  fs::create_directory_symlink(Path("real"), Path("link"));
  EXPECT_TRUE(OpenModelFolder(Path("link")).ok());
  // As in a hub's cache: every file a link to a blob.
  fs::create_directories(Path("snapshot"));
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::create_symlink(fs::path(Path("real")) / file, fs::path(Path("snapshot")) / file);
  }
  EXPECT_TRUE(OpenModelFolder(Path("snapshot")).ok());
}

TEST_F(ModelFolderTest, RoundTripsAsFloat32) {
  Write("tokenizer.json", "{}");
  const absl::Status status = WriteModelFolder(Path("a/b"), spec_, *weights_, DType::kF32, Path("tokenizer.json"));
  ASSERT_TRUE(status.ok()) << status;
  const absl::StatusOr<ModelFolder> folder = OpenModelFolder(Path("a/b"));
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(FormatStackSpec(folder->spec), FormatStackSpec(spec_));
  EXPECT_EQ(folder->weights->Names(), weights_->Names());
  for (const std::string& name : weights_->Names()) {
    EXPECT_EQ(ReadFloats(*folder->weights->Find(name)), ReadFloats(*weights_->Find(name))) << name;
  }
  EXPECT_EQ(folder->tokenizer_path, Path("a/b/tokenizer.json"));
}

TEST_F(ModelFolderTest, WritesBFloat16) {
  ASSERT_TRUE(WriteModelFolder(Path("m"), spec_, *weights_, DType::kBF16, "").ok());
  const absl::StatusOr<ModelFolder> folder = OpenModelFolder(Path("m"));
  ASSERT_TRUE(folder.ok()) << folder.status();
  const std::string name = "transformer.h.0.attn.key.weight";
  EXPECT_EQ(folder->weights->Find(name)->dtype, DType::kBF16);
  const std::vector<float> wanted = ReadFloats(*weights_->Find(name));
  const std::vector<float> got = ReadFloats(*folder->weights->Find(name));
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], std::abs(wanted[i]) / 256);
  EXPECT_EQ(folder->tokenizer_path, "");
}

TEST_F(ModelFolderTest, WriteRefusesFoldersThatHoldAModel) {
  CopyGolden("m");
  EXPECT_EQ(WriteModelFolder(Path("m"), spec_, *weights_, DType::kF32, "").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(OpenModelFolder(Path("m")).ok());
}

TEST_F(ModelFolderTest, WriteRefusesBadArguments) {
  EXPECT_EQ(WriteModelFolder(Path("m"), spec_, *weights_, DType::kF16, "").code(), absl::StatusCode::kInvalidArgument);
  StackSpec other = spec_;
  other.set_vocab_size(47);
  const absl::Status status = WriteModelFolder(Path("m"), other, *weights_, DType::kF32, "");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("lm_head.weight: has shape [48, 32], expected [47, 32]"));
  EXPECT_FALSE(fs::exists(Path("m")));
}

TEST_F(ModelFolderTest, FailedWritesLeaveNothing) {
  EXPECT_EQ(WriteModelFolder(Path("m"), spec_, *weights_, DType::kF32, Path("no_tokenizer.json")).code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(fs::exists(Path("m")));
  EXPECT_FALSE(WriteModelFolder(Path("n/m"), spec_, *weights_, DType::kF32, Path("no_tokenizer.json")).ok());
  EXPECT_FALSE(fs::exists(Path("n")));
  Write("file", "");
  EXPECT_FALSE(WriteModelFolder(Path("file"), spec_, *weights_, DType::kF32, "").ok());
  EXPECT_FALSE(WriteModelFolder(Path("file/m"), spec_, *weights_, DType::kF32, "").ok());
  EXPECT_TRUE(fs::is_regular_file(Path("file")));
}

TEST_F(ModelFolderTest, SaysWhatAModelFolderHolds) {
  EXPECT_THAT(OpenError(Path("absent"), absl::StatusCode::kNotFound), HasSubstr("stack.textproto or config.json"));
  EXPECT_THAT(OpenError(base_.string(), absl::StatusCode::kNotFound), HasSubstr(base_.string()));
  Write("file", "");
  EXPECT_THAT(OpenError(Path("file"), absl::StatusCode::kNotFound), HasSubstr("no model here"));
}

TEST_F(ModelFolderTest, RefusesTwoSpecs) {
  CopyGolden("m");
  Write("m/stack.textproto", kSpec);
  EXPECT_THAT(OpenError(Path("m"), absl::StatusCode::kInvalidArgument), HasSubstr("both"));
}

TEST_F(ModelFolderTest, NamesTheFileAtFault) {
  Write("m/stack.textproto", "width: x");
  EXPECT_THAT(OpenError(Path("m"), absl::StatusCode::kInvalidArgument), HasSubstr("m/stack.textproto:1:"));
  Write("m/stack.textproto", kSpec);
  EXPECT_THAT(OpenError(Path("m"), absl::StatusCode::kNotFound), HasSubstr("model.safetensors"));
  Write("m/model.safetensors", "short");
  EXPECT_THAT(OpenError(Path("m"), absl::StatusCode::kInvalidArgument), HasSubstr("m/model.safetensors"));
}

TEST_F(ModelFolderTest, RefusesWeightsOfAnotherSpec) {
  ASSERT_TRUE(WriteModelFolder(Path("m"), spec_, *weights_, DType::kF32, "").ok());
  std::string text = kSpec;
  text.replace(text.find("value_residual: LINEAR"), 22, "value_residual: NONE");
  Write("m/stack.textproto", text);
  EXPECT_THAT(OpenError(Path("m"), absl::StatusCode::kInvalidArgument),
              HasSubstr("m/model.safetensors: transformer.h.1.attn.lamb: unexpected"));
}

TEST_F(ModelFolderTest, ReadsShards) {
  CopyGolden("m");
  Shard("m");
  const absl::StatusOr<ModelFolder> folder = OpenModelFolder(Path("m"));
  ASSERT_TRUE(folder.ok()) << folder.status();
  const absl::StatusOr<ModelFolder> whole = OpenModelFolder(kGolden);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(folder->weights->Names(), whole->weights->Names());
  for (const std::string& name : whole->weights->Names()) {
    EXPECT_EQ(ReadFloats(*folder->weights->Find(name)), ReadFloats(*whole->weights->Find(name))) << name;
  }
}

TEST_F(ModelFolderTest, RefusesBadShardIndexes) {
  CopyGolden("m");
  Shard("m");
  const std::string index = "m/model.safetensors.index.json";
  const auto error = [&](const std::string& text, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    Write(index, text);
    return OpenError(Path("m"), code);
  };
  EXPECT_THAT(error("["), HasSubstr("index.json: "));
  EXPECT_THAT(error("{}"), HasSubstr("index.json: weight_map"));
  EXPECT_THAT(error(R"({"weight_map": {"a": 1}})"), HasSubstr("\"a\": got 1"));
  EXPECT_THAT(error(R"({"weight_map": {"a": "../shard0.safetensors"}})"), HasSubstr("expected the name of a file"));
  EXPECT_THAT(error(R"({"weight_map": {"a": ".."}})"), HasSubstr("expected the name of a file"));
  EXPECT_THAT(error(R"({"weight_map": {"a": "shard0.safetensors"}})"), HasSubstr("lacks tensor \"a\""));
  EXPECT_THAT(error(R"({"weight_map": {"a": "shard2.safetensors"}})", absl::StatusCode::kNotFound),
              HasSubstr("shard2.safetensors"));
}

TEST_F(ModelFolderTest, RefusesATensorInTwoShards) {
  CopyGolden("m");
  fs::copy_file(Path("m/model.safetensors"), Path("m/a.safetensors"));
  fs::rename(Path("m/model.safetensors"), Path("m/b.safetensors"));
  Write("m/model.safetensors.index.json",
        R"({"weight_map": {"lm_head.weight": "a.safetensors", "transformer.wte.weight": "b.safetensors"}})");
  EXPECT_THAT(OpenError(Path("m"), absl::StatusCode::kInvalidArgument), HasSubstr("another shard"));
}

TEST_F(ModelFolderTest, TiedHeads) {
  StackSpec tied = spec_;
  tied.set_tied_head(true);
  ThreadPool pool(1);
  const std::unique_ptr<WeightSource> weights = InitializeWeights(tied, {}, pool);
  ASSERT_TRUE(WriteModelFolder(Path("tied"), tied, *weights, DType::kF32, "").ok());
  const absl::StatusOr<ModelFolder> ours = OpenModelFolder(Path("tied"));
  ASSERT_TRUE(ours.ok()) << ours.status();
  EXPECT_TRUE(ours->spec.tied_head());

  // A published config says so even of files that have a head of their own.
  CopyGolden("m");
  std::string config = *ReadFile(Path("m/config.json"));
  config.insert(config.find('{') + 1, "\"tie_word_embeddings\": true,");
  Write("m/config.json", config);
  const absl::StatusOr<ModelFolder> theirs = OpenModelFolder(Path("m"));
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  EXPECT_FALSE(theirs->spec.tied_head());
}

}  // namespace
}  // namespace kvm
