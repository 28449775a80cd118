#include "kvm/io/tensors/weight_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/model_folder.h"
#include "kvm/io/model_writer.h"
#include "kvm/io/tensors/safetensors.h"
#include "nlohmann/json.hpp"
#include "testing/conformance/random_weights.h"
#include "testing/conformance/test_stacks.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

// Tensors a, b, ... of the given numbers of float32 elements.
class Sizes : public WeightSource {
 public:
  explicit Sizes(const std::vector<int64_t>& elements) {
    for (const int64_t count : elements) {
      names_.push_back(std::string(1, static_cast<char>('a' + names_.size())));
      tensors_[names_.back()] = Tensor(DType::kF32, {count});
      views_[names_.back()] = tensors_[names_.back()].view();
    }
  }
  std::string Description() const override { return "sizes"; }
  std::vector<std::string> Names() const override { return names_; }
  const TensorView* Find(absl::string_view name) const override {
    const auto found = views_.find(std::string(name));
    return found == views_.end() ? nullptr : &found->second;
  }

 private:
  std::vector<std::string> names_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, TensorView> views_;
};

std::vector<std::vector<std::string>> Plan(const std::vector<int64_t>& elements, int64_t max_bytes,
                                           std::optional<DType> dtype = std::nullopt) {
  const Sizes sizes(elements);
  return PlanShards(sizes.Names(), sizes, dtype, max_bytes);
}

// The expected plans are those of huggingface_hub's split_torch_state_dict_into_shards for the same sizes.
TEST(PlanShards, FillsShardsInOrder) {
  EXPECT_THAT(Plan({1, 1, 1}, 100), ElementsAre(ElementsAre("a", "b", "c")));
  EXPECT_THAT(Plan({2, 2, 2}, 16), ElementsAre(ElementsAre("a", "b"), ElementsAre("c")));
  EXPECT_THAT(Plan({2, 3, 2}, 16), ElementsAre(ElementsAre("a"), ElementsAre("b"), ElementsAre("c")));
  // One that fits nowhere stands alone, and does not end the shard that is being filled.
  EXPECT_THAT(Plan({1, 9, 1, 3}, 20), ElementsAre(ElementsAre("b"), ElementsAre("a", "c", "d")));
  EXPECT_THAT(Plan({9}, 20), ElementsAre(ElementsAre("a")));
}

TEST(PlanShards, CountsBytesOfTheDTypeToBeWritten) {
  EXPECT_THAT(Plan({2, 2, 2}, 12, DType::kBF16), ElementsAre(ElementsAre("a", "b", "c")));
}

class WeightFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    base_ = fs::path(::testing::TempDir()) /
            absl::StrCat("weight_files_", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(base_);
    stack_ = TestStacks()[0];
    weights_ = RandomWeights(stack_.spec, stack_.seed);
  }
  void TearDown() override { fs::remove_all(base_); }

  std::string Path(const std::string& name) const { return (base_ / name).string(); }
  std::vector<std::string> Files(const std::string& folder) const {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(Path(folder))) files.push_back(entry.path().filename().string());
    std::sort(files.begin(), files.end());
    return files;
  }

  fs::path base_;
  TestStack stack_;
  std::unique_ptr<WeightSource> weights_;
};

TEST_F(WeightFilesTest, ShardsHaveAnIndexAndReadBack) {
  ModelWriteOptions options;
  options.max_shard_bytes = 60000;
  ASSERT_TRUE(WriteModelFolder(Path("m"), stack_.spec, *weights_, FolderForm::kStack, options).ok());
  const nlohmann::json index = nlohmann::json::parse(*ReadFile(Path("m/model.safetensors.index.json")));
  int64_t total = 0;
  std::map<std::string, int64_t> shard_bytes;
  for (const std::string& name : weights_->Names()) {
    const int64_t bytes = weights_->Find(name)->byte_size();
    total += bytes;
    shard_bytes[index["weight_map"][name].get<std::string>()] += bytes;
  }
  EXPECT_EQ(index["metadata"]["total_size"], total);
  EXPECT_EQ(index["weight_map"].size(), weights_->Names().size());
  ASSERT_GT(shard_bytes.size(), 1u);
  std::vector<std::string> expected;
  for (size_t i = 1; i <= shard_bytes.size(); ++i) {
    expected.push_back(absl::StrCat("model-0000", i, "-of-0000", shard_bytes.size(), ".safetensors"));
    EXPECT_LE(shard_bytes[expected.back()], 60000);
  }
  expected.push_back("model.safetensors.index.json");
  expected.push_back("stack.textproto");
  EXPECT_EQ(Files("m"), expected);

  const absl::StatusOr<ModelFolder> folder = OpenModelFolder(Path("m"));
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_TRUE(folder->notes.empty());
  for (const std::string& name : weights_->Names()) {
    EXPECT_EQ(ReadFloats(*folder->weights->Find(name)), ReadFloats(*weights_->Find(name))) << name;
  }
}

TEST_F(WeightFilesTest, ConvertsToEveryDType) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    ModelWriteOptions options;
    options.dtype = dtype;
    const std::string name = absl::StrCat("m", static_cast<int>(dtype));
    ASSERT_TRUE(WriteModelFolder(Path(name), stack_.spec, *weights_, FolderForm::kStack, options).ok());
    const absl::StatusOr<ModelFolder> folder = OpenModelFolder(Path(name));
    ASSERT_TRUE(folder.ok()) << folder.status();
    for (const std::string& tensor : folder->weights->Names()) {
      EXPECT_EQ(folder->weights->Find(tensor)->dtype, dtype) << tensor;
    }
  }
}

TEST_F(WeightFilesTest, AFailureLeavesNothing) {
  // Shards are written until one cannot be: its name is taken by a folder.
  fs::create_directories(Path("m"));
  ModelWriteOptions options;
  options.max_shard_bytes = 60000;
  const size_t count =
      PlanShards(TensorOrder(stack_.spec, *weights_), *weights_, std::nullopt, options.max_shard_bytes).size();
  const std::string taken = absl::StrCat("model-00002-of-0000", count, ".safetensors");
  fs::create_directories(Path("m/" + taken));
  EXPECT_FALSE(WriteModelFolder(Path("m"), stack_.spec, *weights_, FolderForm::kStack, options).ok());
  EXPECT_THAT(Files("m"), ElementsAre(taken));
}

TEST_F(WeightFilesTest, InterruptionsAreHeardBetweenFilesToo) {
  ModelWriteOptions options;
  options.max_shard_bytes = 60000;
  const size_t count =
      PlanShards(TensorOrder(stack_.spec, *weights_), *weights_, std::nullopt, options.max_shard_bytes).size();
  ASSERT_GT(count, 1u);
  // Each file has its name only when it is whole: also the last one, after which nothing large follows.
  for (const std::string& file : {std::string("model-00001-of-0000"), absl::StrCat("model-0000", count, "-of-0000")}) {
    const std::string last = absl::StrCat("m/", file, count, ".safetensors");
    options.cancelled = [&] { return fs::exists(Path(last)); };
    const absl::Status status = WriteModelFolder(Path("m"), stack_.spec, *weights_, FolderForm::kStack, options);
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
    EXPECT_FALSE(fs::exists(Path("m"))) << file;
  }
}

}  // namespace
}  // namespace kvm
