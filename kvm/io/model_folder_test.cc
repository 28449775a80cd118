#include "kvm/io/model_folder.h"

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/model_writer.h"
#include "kvm/io/tensors/cast.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/kernels/tensor.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/initializer.h"

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

  static ModelWriteOptions Options(DType dtype, const std::string& tokenizer = "") {
    ModelWriteOptions options;
    options.dtype = dtype;
    options.tokenizer_path = tokenizer;
    return options;
  }

  absl::Status WriteOurs(const std::string& name, const StackSpec& spec, const ModelWriteOptions& options) const {
    return WriteModelFolder(Path(name), spec, *weights_, FolderForm::kStack, options);
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
  const absl::Status status = WriteOurs("a/b", spec_, Options(DType::kF32, Path("tokenizer.json")));
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
  ASSERT_TRUE(WriteOurs("m", spec_, Options(DType::kBF16)).ok());
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
  EXPECT_EQ(WriteOurs("m", spec_, Options(DType::kF32)).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(OpenModelFolder(Path("m")).ok());
}

TEST_F(ModelFolderTest, WriteRefusesBadArguments) {
  EXPECT_EQ(WriteOurs("m", spec_, Options(DType::kI8)).code(), absl::StatusCode::kInvalidArgument);
  StackSpec other = spec_;
  other.set_vocab_size(47);
  const absl::Status status = WriteOurs("m", other, Options(DType::kF32));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("lm_head.weight: has shape [48, 32], expected [47, 32]"));
  EXPECT_FALSE(fs::exists(Path("m")));
}

TEST_F(ModelFolderTest, FailedWritesLeaveNothing) {
  EXPECT_EQ(WriteOurs("m", spec_, Options(DType::kF32, Path("no_tokenizer.json"))).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(fs::exists(Path("m")));
  EXPECT_FALSE(WriteOurs("n/m", spec_, Options(DType::kF32, Path("no_tokenizer.json"))).ok());
  EXPECT_FALSE(fs::exists(Path("n")));
  Write("file", "");
  EXPECT_FALSE(WriteOurs("file", spec_, Options(DType::kF32)).ok());
  EXPECT_FALSE(WriteOurs("file/m", spec_, Options(DType::kF32)).ok());
  EXPECT_TRUE(fs::is_regular_file(Path("file")));
}

TEST_F(ModelFolderTest, SaysWhatAModelFolderHolds) {
  EXPECT_THAT(OpenError(Path("absent"), absl::StatusCode::kNotFound), HasSubstr("absent: no such file or folder"));
  EXPECT_THAT(OpenError(Path(""), absl::StatusCode::kNotFound), HasSubstr("stack.textproto or config.json"));
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
  ASSERT_TRUE(WriteOurs("m", spec_, Options(DType::kF32)).ok());
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
  EXPECT_THAT(error(R"({"weight_map": {"a": "shard0.safetensors"}})"),
              HasSubstr("shard0.safetensors: a: missing, though "));
  EXPECT_THAT(error(R"({"weight_map": {"a": "shard2.safetensors"}})", absl::StatusCode::kNotFound),
              HasSubstr("shard2.safetensors"));
}

// Three things can be wrong with a tensor, and each has a message of its own.
TEST_F(ModelFolderTest, SaysWhyATensorOfAShardIsMissing) {
  CopyGolden("m");
  Shard("m");
  const std::string index = "m/model.safetensors.index.json";
  const std::string text = *ReadFile(Path(index));
  const size_t entry = text.find("\"lm_head.weight\"");
  ASSERT_NE(entry, std::string::npos);
  std::string without = text;
  without.erase(entry, text.find(',', entry) + 1 - entry);
  Write(index, without);
  EXPECT_THAT(OpenError(Path("m"), absl::StatusCode::kInvalidArgument),
              HasSubstr("index.json (weight_map): lm_head.weight: missing, expected shape [64, 32]"));

  std::string elsewhere = text;
  elsewhere.insert(text.find(':', entry) + 2, "other_");
  Write(index, elsewhere);
  EXPECT_THAT(OpenError(Path("m"), absl::StatusCode::kNotFound),
              ::testing::MatchesRegex(".*m/other_shard0.safetensors: this shard is missing; .*index.json puts 1 tensor "
                                      "there"));

  std::string swapped = text;
  const size_t digit = text.find("shard", entry) + 5;
  swapped[digit] = text[digit] == '0' ? '1' : '0';
  Write(index, swapped);
  EXPECT_THAT(OpenError(Path("m"), absl::StatusCode::kInvalidArgument),
              HasSubstr("safetensors: lm_head.weight: missing, though "));
}

// Whatever is wrong with shards is said of all of them at once.
TEST_F(ModelFolderTest, NamesAllShardsAtFault) {
  CopyGolden("m");
  Shard("m");
  const std::string index = "m/model.safetensors.index.json";
  Write(index, R"({"weight_map": {"a": "x.safetensors", "b": "shard0.safetensors", "c": "y.safetensors",
                                  "d": "x.safetensors"}})");
  EXPECT_THAT(OpenError(Path("m"), absl::StatusCode::kNotFound),
              ::testing::MatchesRegex(".*/m: 2 of 3 shards are missing: x.safetensors, y.safetensors; .*index.json "
                                      "puts 3 tensors there"));
  fs::create_symlink("blobs/x", Path("m/x.safetensors"));
  EXPECT_THAT(OpenError(Path("m"), absl::StatusCode::kNotFound),
              ::testing::MatchesRegex(".*m/x.safetensors: a link to blobs/x, which is not there; .*m/y.safetensors: "
                                      "this shard is missing; .*index.json puts 1 tensor there"));
  Write("m/y.safetensors", "GGUF");
  fs::remove(Path("m/x.safetensors"));
  Write("m/x.safetensors", "PK\x03\x04");
  const std::string error = OpenError(Path("m"), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error, HasSubstr("m/x.safetensors: "));
  EXPECT_THAT(error, HasSubstr("m/y.safetensors: "));
  EXPECT_THAT(error, HasSubstr("m/shard0.safetensors: b: missing, though "));
  Write(index, R"({"weight_map": {"a": "../x", "b": "shard0.safetensors", "c": 7}})");
  EXPECT_THAT(OpenError(Path("m"), absl::StatusCode::kInvalidArgument),
              HasSubstr(R"(weight_map: "a": got "../x"; "c": got 7, expected the name of a file)"));
}

// What a file has too much stays short however much it is, and a key that is missing is pointed at.
TEST_F(ModelFolderTest, PointsAtKeysThatTensorsDoNotFit) {
  CopyGolden("m");
  std::string config = *ReadFile(Path("m/config.json"));
  const std::string key = "\"num_hidden_layers\"";
  ASSERT_NE(config.find(key), std::string::npos);
  config.replace(config.find(key), key.size(), "\"num_hiden_layers\"");
  Write("m/config.json", config);
  EXPECT_THAT(OpenError(Path("m"), absl::StatusCode::kInvalidArgument),
              ::testing::EndsWith("; config.json has no num_hidden_layers (12 is taken); config.json has "
                                  "num_hiden_layers, which nothing reads; did you mean num_hidden_layers?"));

  CopyGolden("extra");
  std::vector<NamedTensorView> tensors;
  const auto file = SafetensorsFile::Open(Path("m/model.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  for (const std::string& name : (*file)->Names()) tensors.push_back({name, *(*file)->Find(name)});
  const TensorView any = tensors[0].tensor;
  for (int i = 0; i < 3000; ++i) tensors.push_back({absl::StrCat("extra.", i, ".weight"), any});
  ASSERT_TRUE(WriteSafetensors(Path("extra/model.safetensors"), tensors).ok());
  EXPECT_THAT(OpenError(Path("extra"), absl::StatusCode::kInvalidArgument),
              ::testing::EndsWith(": extra.{0..2999}.weight: unexpected, this stack has no such tensor"));
}

// No key passes in silence: other arithmetic is refused, and what nothing knows is said.
TEST_F(ModelFolderTest, EveryKeyOfAConfigHasAnAnswer) {
  CopyGolden("m");
  const std::string config = *ReadFile(Path("m/config.json"));
  const auto write_with = [&](const std::string& field) {
    Write("m/config.json", absl::StrCat("{", field, ", ", config.substr(config.find('{') + 1)));
  };
  write_with(R"("rope_scaling": {"factor": 4}, "quantization_config": {"bits": 4}, "hidden_act": "silu")");
  const std::string error = OpenError(Path("m"), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error, HasSubstr("rope_scaling.factor: got 4, expected 1: no scaling is supported"));
  EXPECT_THAT(error,
              HasSubstr("quantization_config: got {\"bits\":4}, expected null or {}: nothing else is supported"));
  EXPECT_THAT(error, HasSubstr("hidden_act: got \"silu\", expected null or \"relu2\""));
  const auto notes_with = [&](const std::string& field) {
    write_with(field);
    const absl::StatusOr<ModelFolder> folder = OpenModelFolder(Path("m"));
    return folder.ok() ? folder->notes : std::vector<std::string>{folder.status().ToString()};
  };
  EXPECT_THAT(notes_with(R"("rope_scaling": null, "quantization_config": null, "torch_dtype_": null)"),
              ::testing::ElementsAre("config.json: nothing reads torch_dtype_"));
  EXPECT_THAT(notes_with(R"("logit_softcapp": 30)"),
              ::testing::ElementsAre("config.json: nothing reads logit_softcapp; did you mean logit_softcap?"));
  EXPECT_THAT(notes_with(R"("transformers_version": "5.0.0")"), ::testing::IsEmpty());
}

// The index alone says what there is: tensors of shards that it does not name, even twice, and other files are not
// read.
TEST_F(ModelFolderTest, TheIndexIsTheAuthority) {
  CopyGolden("m");
  fs::copy_file(Path("m/model.safetensors"), Path("m/whole.safetensors"));
  Shard("m");
  const std::string index = "m/model.safetensors.index.json";
  std::string text = *ReadFile(Path(index));
  const size_t file = text.find("shard", text.find("\"lm_head.weight\""));
  text.replace(file, 6, "whole");
  Write(index, text);
  Write("m/stray.safetensors", "not one at all");
  Write("m/model-00001-of-00002.safetensors", "neither");
  const absl::StatusOr<ModelFolder> folder = OpenModelFolder(Path("m"));
  ASSERT_TRUE(folder.ok()) << folder.status();
  ASSERT_EQ(folder->notes.size(), 1u);
  EXPECT_THAT(folder->notes[0], HasSubstr("total_size is 1; the tensors have "));

  // A head that is there, in a file of the index, but not in the index: the embedding takes its place when it may.
  std::string config = *ReadFile(Path("m/config.json"));
  config.insert(config.find('{') + 1, "\"tie_word_embeddings\": true,");
  Write("m/config.json", config);
  const size_t entry = text.find("\"lm_head.weight\"");
  text.erase(entry, text.find(',', entry) + 1 - entry);
  Write(index, text);
  const absl::StatusOr<ModelFolder> tied = OpenModelFolder(Path("m"));
  ASSERT_TRUE(tied.ok()) << tied.status();
  EXPECT_TRUE(tied->spec.tied_head());
  ASSERT_EQ(tied->notes.size(), 2u);
  EXPECT_THAT(tied->notes[0], HasSubstr("shard0.safetensors: 1 of its tensors are not named by "));
}

TEST_F(ModelFolderTest, ReadsTensorsOfMixedTypes) {
  CopyGolden("m");
  const auto file = SafetensorsFile::Open(Path("m/model.safetensors"));
  ASSERT_TRUE(file.ok());
  std::vector<NamedTensorView> views;
  std::vector<Tensor> cast;
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  for (const std::string& name : (*file)->Names()) {
    cast.push_back(*CastTensor(*(*file)->Find(name), kTypes[views.size() % 3], name));
    views.push_back({name, cast.back().view()});
  }
  ASSERT_TRUE(WriteSafetensors(Path("m/mixed"), views).ok());
  fs::rename(Path("m/mixed"), Path("m/model.safetensors"));
  const absl::StatusOr<ModelFolder> folder = OpenModelFolder(Path("m"));
  ASSERT_TRUE(folder.ok()) << folder.status();
  for (const NamedTensorView& view : views) {
    EXPECT_EQ(ReadFloats(*folder->weights->Find(view.name)), ReadFloats(view.tensor)) << view.name;
  }
}

TEST_F(ModelFolderTest, OpensAHubsCache) {
  CopyGolden("hub/blobs");
  const std::string snapshot = "hub/models--someone--kvm/snapshots/0123abcd";
  fs::create_directories(Path(snapshot));
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::create_symlink(fs::path("../../../blobs") / file, fs::path(Path(snapshot)) / file);
  }
  for (const char* path : {"hub/models--someone--kvm", snapshot.c_str()}) {
    const absl::StatusOr<ModelFolder> folder = OpenModelFolder(Path(path));
    ASSERT_TRUE(folder.ok()) << folder.status();
    EXPECT_EQ(folder->path, Path(snapshot));
  }
}

// What is there instead of a file, and which.
TEST_F(ModelFolderTest, NamesWhatAFileIsInstead) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n";
  CopyGolden("m");
  Write("m/model.safetensors", pointer);
  EXPECT_THAT(OpenError(Path("m"), absl::StatusCode::kInvalidArgument),
              ::testing::AllOf(HasSubstr("m/model.safetensors: "), HasSubstr("looks like a Git LFS pointer")));
  Write("m/model.safetensors", std::string("PK\x03\x04\x00\x00\x08\x08", 8));
  EXPECT_THAT(OpenError(Path("m"), absl::StatusCode::kInvalidArgument), HasSubstr("zip archive, as PyTorch"));
  Write("m/config.json", pointer);
  EXPECT_THAT(OpenError(Path("m"), absl::StatusCode::kInvalidArgument),
              ::testing::AllOf(HasSubstr("m/config.json: "), HasSubstr("looks like a Git LFS pointer")));
  Write("m/config.json", "<!DOCTYPE html><html>Not found</html>");
  EXPECT_THAT(OpenError(Path("m"), absl::StatusCode::kInvalidArgument), HasSubstr("looks like an HTML page"));
  CopyGolden("n");
  fs::rename(Path("n/model.safetensors"), Path("n/pytorch_model.bin"));
  EXPECT_THAT(OpenError(Path("n"), absl::StatusCode::kNotFound), HasSubstr("it has pytorch_model.bin"));
  Write("o/stack.textproto", pointer);
  EXPECT_THAT(OpenError(Path("o"), absl::StatusCode::kInvalidArgument), HasSubstr("looks like a Git LFS pointer"));
}

TEST_F(ModelFolderTest, KeepsAllFieldsOfAConfig) {
  const absl::StatusOr<ModelFolder> folder = OpenModelFolder(kGolden);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(folder->config.at("tie_worhidden_sizedings"), "false");  // misspelt where they are made
  EXPECT_EQ(folder->config.at("bos_token_id"), "null");
  EXPECT_EQ(folder->config.at("model_type"), "\"rwkv7backbone\"");
}

TEST_F(ModelFolderTest, TiedHeads) {
  StackSpec tied = spec_;
  tied.set_tied_head(true);
  ThreadPool pool(1);
  const std::unique_ptr<WeightSource> weights = InitializeWeights(tied, {}, pool);
  ASSERT_TRUE(WriteModelFolder(Path("tied"), tied, *weights, FolderForm::kStack, Options(DType::kF32)).ok());
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
