#include "kvm/io/model_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/model_writer.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/stack/stack_spec.h"
#include "testing/conformance/random_weights.h"
#include "testing/conformance/test_stacks.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kTokenizer[] = "testing/data/gpt2/tokenizer.json";

class ModelFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              absl::StrCat("model_file_", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    spec_ = TestStacks()[0].spec;
    weights_ = RandomWeights(spec_, 1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  std::string Refusal(const std::string& name, const std::string& bytes) const {
    EXPECT_TRUE(WriteFileAtomically(Path(name), bytes).ok());
    const absl::StatusOr<OpenedModel> model = OpenModel(Path(name));
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << model.status();
    return std::string(model.status().message());
  }

  void ExpectSame(const std::string& path, const std::string& kind) const {
    const absl::StatusOr<OpenedModel> opened = OpenModel(path);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(Name(opened->kind), kind);
    EXPECT_EQ(FormatStackSpec(opened->model.spec), FormatStackSpec(spec_));
    EXPECT_NE(opened->model.tokenizer_path, "");
    EXPECT_EQ(*ReadFile(opened->model.tokenizer_path), *ReadFile(kTokenizer));
    ASSERT_EQ(opened->model.weights->Names(), weights_->Names());
    for (const std::string& name : weights_->Names()) {
      EXPECT_EQ(ReadFloats(*opened->model.weights->Find(name)), ReadFloats(*weights_->Find(name))) << name;
    }
  }

  fs::path folder_;
  StackSpec spec_;
  std::unique_ptr<WeightSource> weights_;
};

TEST_F(ModelFileTest, EveryFormOpensAsWhatItIs) {
  ModelWriteOptions options;
  options.tokenizer_path = kTokenizer;
  options.config = {{"mine", "[1]"}};
  ASSERT_TRUE(WriteModelFolder(Path("folder"), spec_, *weights_, FolderForm::kStack, options).ok());
  ASSERT_TRUE(WriteModelSafetensors(Path("a.safetensors"), spec_, *weights_, options).ok());
  // Names do not matter.
  ASSERT_TRUE(WriteModelPacked(Path("new/b.bin"), spec_, *weights_, options).ok());
  ExpectSame(Path("folder"), "model folder");
  ExpectSame(Path("a.safetensors"), "safetensors model");
  ExpectSame(Path("new/b.bin"), "packed model");
  EXPECT_EQ(OpenModel(Path("a.safetensors"))->model.config.at("mine"), "[1]");
  EXPECT_EQ(OpenModel(Path("new/b.bin"))->model.config.at("mine"), "[1]");
  EXPECT_TRUE(OpenModel(Path("new/b.bin"))->fingerprint.has_value());
}

TEST_F(ModelFileTest, AFoldersFileMeansTheFolder) {
  const absl::StatusOr<OpenedModel> opened = OpenModel("testing/golden/rwkv7/model.safetensors");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->model.config.at("token_mixer"), "\"rwkv7\"");
}

TEST_F(ModelFileTest, ReplacesNothing) {
  ASSERT_TRUE(WriteFileAtomically(Path("a.kvm"), "mine").ok());
  EXPECT_EQ(WriteModelPacked(Path("a.kvm"), spec_, *weights_, {}).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(WriteModelSafetensors(Path("a.kvm"), spec_, *weights_, {}).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(*ReadFile(Path("a.kvm")), "mine");
  ASSERT_TRUE(WriteFileAtomically(Path("b.tokenizer.json"), "mine").ok());
  ModelWriteOptions options;
  options.tokenizer_path = kTokenizer;
  EXPECT_EQ(WriteModelPacked(Path("b.kvm"), spec_, *weights_, options).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(fs::exists(Path("b.kvm")));
}

TEST_F(ModelFileTest, AFailureLeavesNothing) {
  StackSpec other = spec_;
  other.set_vocab_size(49);
  EXPECT_FALSE(WriteModelPacked(Path("new/a.kvm"), other, *weights_, {}).ok());
  EXPECT_FALSE(WriteModelSafetensors(Path("new/a.safetensors"), other, *weights_, {}).ok());
  // This one fails when its folder and tokenizer are there: the stack is none that a .pth holds.
  ModelWriteOptions options;
  options.tokenizer_path = kTokenizer;
  EXPECT_FALSE(WriteModelRwkv(Path("new/a.pth"), spec_, *weights_, options).ok());
  EXPECT_FALSE(fs::exists(Path("new")));
}

// New checksums must not vouch for old damage.
TEST_F(ModelFileTest, DamagedWeightsAreNotWritten) {
  ASSERT_TRUE(WriteModelPacked(Path("a.kvm"), spec_, *weights_, {}).ok());
  std::string bytes = *ReadFile(Path("a.kvm"));
  bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 1);
  ASSERT_TRUE(WriteFileAtomically(Path("a.kvm"), bytes).ok());
  const absl::StatusOr<OpenedModel> opened = OpenModel(Path("a.kvm"));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const WeightSource& damaged = *opened->model.weights;
  ModelWriteOptions bf16;
  bf16.dtype = DType::kBF16;
  for (const ModelWriteOptions& options : {ModelWriteOptions(), bf16}) {
    for (const absl::Status& status : {
             WriteModelPacked(Path("b/b.kvm"), spec_, damaged, options),
             WriteModelSafetensors(Path("b/b.safetensors"), spec_, damaged, options),
             WriteModelFolder(Path("b"), spec_, damaged, FolderForm::kStack, options),
         }) {
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(Path("a.kvm") + ": the weights are not those"));
    }
  }
  EXPECT_FALSE(fs::exists(Path("b")));
}

TEST_F(ModelFileTest, BrokenLinksAndOtherThingsAreNamed) {
  fs::create_directories(Path("m"));
  ASSERT_TRUE(WriteModelFolder(Path("m"), spec_, *weights_, FolderForm::kStack, {}).ok());
  const auto refusal = [](const std::string& path, absl::StatusCode code) {
    const absl::Status status = OpenModel(path).status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(refusal(Path("absent"), absl::StatusCode::kNotFound), Path("absent") + ": no such file or folder");
  for (const char* file : {"m/model.safetensors", "m/stack.textproto"}) {
    const fs::path kept = fs::path(Path(file)).concat(".kept");
    fs::rename(Path(file), kept);
    fs::create_symlink("../blobs/1234", Path(file));
    EXPECT_EQ(refusal(Path("m"), absl::StatusCode::kFailedPrecondition),
              "cannot read " + Path(file) + ": a link to ../blobs/1234, which is not there");
    EXPECT_FALSE(WriteModelFolder(Path("m"), spec_, *weights_, FolderForm::kStack, {}).ok());
    fs::rename(kept, Path(file));
  }
  fs::create_symlink("loop.kvm", Path("loop.kvm"));
  EXPECT_THAT(refusal(Path("loop.kvm"), absl::StatusCode::kFailedPrecondition), HasSubstr("leads in a circle"));
  ASSERT_EQ(mkfifo(Path("pipe.kvm").c_str(), 0600), 0);
  EXPECT_THAT(refusal(Path("pipe.kvm"), absl::StatusCode::kFailedPrecondition),
              HasSubstr("neither a file nor a folder"));
  fs::remove(Path("m/stack.textproto"));
  ASSERT_EQ(mkfifo(Path("m/stack.textproto").c_str(), 0600), 0);
  EXPECT_THAT(refusal(Path("m"), absl::StatusCode::kFailedPrecondition), HasSubstr("not a regular file"));
}

TEST_F(ModelFileTest, NamesWhatAFileIs) {
  EXPECT_EQ(OpenModel(Path("absent")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Refusal("a", "version https://git-lfs.github.com/spec/v1\n"),
              AllOf(HasSubstr(Path("a")), HasSubstr("looks like a Git LFS pointer")));
  EXPECT_THAT(Refusal("a.kvm", "<html>"), HasSubstr("HTML page"));
  EXPECT_THAT(Refusal("a.pth", "GGUF\x03"), HasSubstr("GGUF"));
  EXPECT_THAT(Refusal("a", ""), AllOf(HasSubstr("not a model"), HasSubstr("; it is empty")));
  EXPECT_THAT(Refusal("a", "KVM"), HasSubstr("; it has only 3 bytes"));
  EXPECT_THAT(Refusal("a", std::string("PK\x03\x04garbage")), HasSubstr(Path("a")));
  EXPECT_THAT(Refusal("a", std::string("\x80\x02}q")), HasSubstr(Path("a")));
}

TEST_F(ModelFileTest, RefusesTensorsThatSayNoStack) {
  const Tensor tensor(DType::kF32, {2});
  ASSERT_TRUE(WriteSafetensors(Path("a.safetensors"), {{"w", tensor.view()}}).ok());
  const absl::StatusOr<OpenedModel> model = OpenModel(Path("a.safetensors"));
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("tensors without a stack"));
  ASSERT_TRUE(WriteSafetensors(Path("b.safetensors"), {{"w", tensor.view()}}, {{kStackMetadata, "width: x"}}).ok());
  EXPECT_THAT(std::string(OpenModel(Path("b.safetensors")).status().message()), HasSubstr("kvm.stack:1:"));
}

// Whoever opens models does not link what tokenizers are made of.
TEST(ModelFile, NeedsNoRegularExpressions) {
  EXPECT_EQ(*ReadFile("kvm/io/models_need_patterns"), "");
  EXPECT_NE(*ReadFile("kvm/io/tokenizers_need_patterns"), "");
}

}  // namespace
}  // namespace kvm
