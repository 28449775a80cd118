#include "kvm/io/gguf/gguf_file.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/kernels/tensor.h"
#include "testing/allocation_peak.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();

std::string Data(const std::string& name) { return "testing/data/gguf/" + name; }

std::unique_ptr<GgufFile> Opened(const std::string& path) {
  absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? *std::move(file) : nullptr;
}

std::string BytesOf(const TensorView& tensor) {
  return {static_cast<const char*>(tensor.data), static_cast<size_t>(tensor.byte_size())};
}

TEST(GgufFile, HasTheNumbersThatTheFormatsOwnToolsRead) {
  const auto file = Opened(Data("types.gguf"));
  const auto expected = SafetensorsFile::Open(Data("types_expected.safetensors"));
  ASSERT_TRUE(file != nullptr && expected.ok()) << expected.status();
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->Names(), (*expected)->Names());
  ASSERT_EQ(file->Names().size(), 19u);
  for (const std::string& name : file->Names()) {
    SCOPED_TRACE(name);
    const TensorView& numbers = *(*expected)->Find(name);
    const HeldTensor read = file->Read(name);
    EXPECT_EQ(read.view.shape, numbers.shape);
    EXPECT_EQ(ReadFloats(read.view), ReadFloats(numbers));
    EXPECT_EQ(file->Info(name)->shape, numbers.shape);
    EXPECT_EQ(file->Info(name)->dtype, read.view.dtype);
    const TensorView* const found = file->Find(name);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->shape, numbers.shape);
    EXPECT_EQ(BytesOf(*found), BytesOf(read.view));
    EXPECT_EQ(file->Find(name), found);
  }
}

TEST(GgufFile, ShowsWhatIsNotQuantizedWhereItLies) {
  const auto file = Opened(Data("types.gguf"));
  ASSERT_NE(file, nullptr);
  for (const char* name : {"f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64"}) {
    const GgufTensor* const tensor = file->FindTensor(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(file->Read(name).view.data, tensor->bytes.data());
    EXPECT_EQ(file->Find(name)->data, tensor->bytes.data());
    EXPECT_FALSE(file->Stored(name).has_value());
  }
  EXPECT_EQ(file->Info("bf16")->dtype, DType::kBF16);
  EXPECT_EQ(file->Find("none"), nullptr);
  EXPECT_EQ(file->FindTensor("none"), nullptr);
  EXPECT_FALSE(file->Info("none").has_value());
  EXPECT_FALSE(file->Stored("none").has_value());
}

TEST(GgufFile, HandsOutRawBlocksAndRows) {
  const auto file = Opened(Data("types.gguf"));
  ASSERT_NE(file, nullptr);
  const GgufTensor* const cube = file->FindTensor("cube");
  ASSERT_NE(cube, nullptr);
  EXPECT_EQ(cube->type, BlockType::kQ4_0);
  EXPECT_THAT(cube->shape, ElementsAre(2, 3, 64));
  EXPECT_EQ(cube->bytes.size(), 12u * 18);
  EXPECT_EQ(file->Stored("cube")->type, "Q4_0");
  EXPECT_EQ(file->Stored("cube")->bytes, 12 * 18);
  const std::vector<float> all = ReadFloats(*file->Find("cube"));
  for (int64_t first = 0; first < 6; ++first) {
    std::vector<float> rows(std::min<int64_t>(2, 6 - first) * 64);
    CopyRows(*cube, first, absl::MakeSpan(rows));
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), all.begin() + first * 64)) << first;
  }
  std::vector<float> row(64);
  EXPECT_DEATH(CopyRows(*cube, 6, absl::MakeSpan(row)), "first is 6, expected at most 5");
}

TEST(GgufFile, ReadingAllTensorsTakesTheMemoryOfOne) {
  const auto file = Opened(Data("types.gguf"));
  ASSERT_NE(file, nullptr);
  const size_t peak = AllocationPeak([&] {
    for (const std::string& name : file->Names()) file->Read(name);
  });
  // The largest as floats, and the names.
  EXPECT_LE(peak, 2 * 512 * sizeof(float) + 2048);
}

TEST(GgufMetadata, HasEveryTypeOfValue) {
  const auto file = Opened(Data("metadata.gguf"));
  ASSERT_NE(file, nullptr);
  const GgufMetadata& metadata = file->metadata();
  EXPECT_EQ(metadata.values().size(), 25u);
  EXPECT_EQ(*metadata.String("general.architecture"), "test");
  EXPECT_EQ(*metadata.Int("u8", kLow, kHigh), 255);
  EXPECT_EQ(*metadata.Int("i8", kLow, kHigh), -128);
  EXPECT_EQ(*metadata.Int("u16", kLow, kHigh), 65535);
  EXPECT_EQ(*metadata.Int("i16", kLow, kHigh), -32768);
  EXPECT_EQ(*metadata.Int("u32", kLow, kHigh), 4294967295);
  EXPECT_EQ(*metadata.Int("i32", kLow, kHigh), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(*metadata.Int("i64", kLow, kHigh), kLow);
  EXPECT_EQ(*metadata.Number("f32"), 0.1f);
  EXPECT_EQ(*metadata.Number("f64"), 0.1);
  EXPECT_EQ(*metadata.Number("i8"), -128);
  EXPECT_EQ(*metadata.Number("u64"), 18446744073709551615.0);
  EXPECT_EQ(*metadata.Bool("true"), true);
  EXPECT_EQ(*metadata.Bool("false"), false);
  EXPECT_EQ(*metadata.String("string"), "h\xc3\xa9llo\n");
  EXPECT_THAT(*metadata.Ints("ints", kLow, kHigh), ElementsAre(1, -2, 3));
  for (const char* key : {"u8s", "i8s", "u16s", "i64s", "u64s"}) {
    EXPECT_THAT(*metadata.Ints(key, 0, 7), ElementsAre(0, 7)) << key;
  }
  EXPECT_THAT(*metadata.Numbers("floats"), ElementsAre(0.5f, -1.5f));
  EXPECT_THAT(*metadata.Numbers("f64s"), ElementsAre(0.5f, 2.0f));
  EXPECT_THAT(*metadata.Bools("bools"), ElementsAre(true, false, true));
  const GgufStrings strings = *metadata.Strings("strings");
  EXPECT_EQ(strings.size(), 24u);
  const std::vector<absl::string_view> copied(strings.begin(), strings.end());
  ASSERT_EQ(copied.size(), 24u);
  EXPECT_THAT(std::vector<absl::string_view>(copied.begin(), copied.begin() + 4), ElementsAre("", "a", "bc",
                                                                                              "d\xc3\xa9"
                                                                                              "f"));
  EXPECT_EQ(copied[23], "string 19");
  // Alignment 64.
  EXPECT_THAT(ReadFloats(*file->Find("a")), ElementsAre(0, 1, 2));
  EXPECT_THAT(ReadFloats(*file->Find("b")), ElementsAre(0, 1, 2, 3, 4));
}

TEST(GgufMetadata, SaysWhatIsThereAndWhatWasExpected) {
  const auto file = Opened(Data("metadata.gguf"));
  ASSERT_NE(file, nullptr);
  const GgufMetadata& metadata = file->metadata();
  const auto message = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const std::string start = Data("metadata.gguf") + ": key ";
  EXPECT_EQ(message(metadata.Int("none", 1, 8).status()),
            start + "\"none\": missing, expected a whole number from 1 to 8");
  EXPECT_EQ(message(metadata.Int("u8", 1, 8).status()), start + "\"u8\": is 255, expected a whole number from 1 to 8");
  EXPECT_EQ(message(metadata.Int("u64", 0, kHigh).status()),
            start + "\"u64\": is 18446744073709551615, expected a whole number at least 0");
  EXPECT_EQ(message(metadata.Int("ints", 0, 1).status()),
            start + "\"ints\": has type array of 3 i32, expected a whole number from 0 to 1");
  EXPECT_EQ(message(metadata.Ints("ints", 0, 9).status()),
            start + "\"ints\": element 1 is -2, expected whole numbers from 0 to 9");
  EXPECT_EQ(message(metadata.Ints("u8", 0, 9).status()),
            start + "\"u8\": has type u8, expected an array of whole numbers from 0 to 9");
  EXPECT_EQ(message(metadata.Bool("u8").status()), start + "\"u8\": has type u8, expected a bool");
  EXPECT_EQ(message(metadata.Number("string").status()), start + "\"string\": has type string, expected a number");
  EXPECT_EQ(message(metadata.String("strings").status()),
            start + "\"strings\": has type array of 24 string, expected a string");
  EXPECT_EQ(message(metadata.Strings("string").status()),
            start + "\"string\": has type string, expected an array of strings");
  // Defaults are for keys that are not there.
  EXPECT_EQ(*metadata.IntOr("none", 0, 1, 7), 7);
  EXPECT_FALSE(metadata.IntOr("string", 0, 1, 7).ok());
  EXPECT_EQ(*metadata.NumberOr("none", 0.5), 0.5);
  EXPECT_EQ(*metadata.NumberOr("f32", 0.5), 0.1f);
  EXPECT_EQ(*metadata.BoolOr("none", true), true);
  EXPECT_EQ(*metadata.BoolOr("false", true), false);
  EXPECT_EQ(*metadata.StringOr("none", "x"), "x");
  EXPECT_EQ(*metadata.StringOr("string", "x"), "h\xc3\xa9llo\n");
}

TEST(GgufMetadata, FormatsValues) {
  const auto file = Opened(Data("metadata.gguf"));
  ASSERT_NE(file, nullptr);
  const auto format = [&](absl::string_view key) { return FormatGgufValue(*file->metadata().Find(key)); };
  EXPECT_EQ(format("i8"), "-128");
  EXPECT_EQ(format("u64"), "18446744073709551615");
  EXPECT_EQ(format("f32"), "0.1");
  EXPECT_EQ(format("true"), "true");
  EXPECT_EQ(format("string"), "h\xc3\xa9llo\n");
  EXPECT_EQ(format("ints"), "[1, -2, 3]");
  EXPECT_EQ(format("bools"), "[true, false, true]");
  EXPECT_THAT(format("strings"), StartsWith("[\"\", \"a\", \"bc\", "));
  EXPECT_THAT(format("strings"), HasSubstr(", \"string 3\", ... 24 in all]"));
}

class GgufSplitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              absl::StrCat("gguf_", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    for (int i = 1; i <= 3; ++i) Write(Name(i), *ReadFile(Data(Name(i))));
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string Name(int i) { return absl::StrCat("split-0000", i, "-of-00003.gguf"); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  void Write(const std::string& name, const std::string& bytes) const {
    EXPECT_TRUE(WriteFileAtomically(Path(name), bytes).ok());
  }
  // Puts `value` behind the key of a part.
  void Patch(int part, const std::string& key, const std::string& value) const {
    std::string bytes = *ReadFile(Path(Name(part)));
    const size_t at = bytes.find(key);
    ASSERT_NE(at, std::string::npos);
    bytes.replace(at + key.size() + 4, value.size(), value);
    Write(Name(part), bytes);
  }
  std::string Refusal(const std::string& name) const {
    return std::string(GgufFile::Open(Path(name)).status().message());
  }

  fs::path folder_;
};

TEST_F(GgufSplitTest, AnyPartOpensAll) {
  for (int part = 1; part <= 3; ++part) {
    const auto file = Opened(Path(Name(part)));
    ASSERT_NE(file, nullptr);
    EXPECT_THAT(file->Names(), ElementsAre("tensor.0", "tensor.1", "tensor.2", "tensor.3", "tensor.4"));
    EXPECT_EQ(*file->metadata().Int("test.block_count", 0, 9), 2);
    EXPECT_THAT(file->parts(), ElementsAre(Path(Name(1)), Path(Name(2)), Path(Name(3))));
    EXPECT_EQ(file->Description(), Path(Name(part)));
    for (int i = 0; i < 5; ++i) {
      const TensorView* const tensor = file->Find(absl::StrCat("tensor.", i));
      EXPECT_THAT(tensor->shape, ElementsAre(2, i + 1));
      EXPECT_EQ(ReadFloats(*tensor), std::vector<float>(2 * (i + 1), i));
    }
  }
}

TEST_F(GgufSplitTest, PartsThatAreMissingOrDoNotBelongTogether) {
  fs::remove(Path(Name(3)));
  const absl::Status status = GgufFile::Open(Path(Name(2))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path(Name(3))));
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("; ", Path(Name(2)), " is part 2 of 3")));

  fs::copy_file(Path(Name(2)), Path("renamed.gguf"));
  EXPECT_EQ(Refusal("renamed.gguf"),
            Path("renamed.gguf") +
                ": keys split.no and split.count say that it is part 2 of 3, expected a name that "
                "ends in -00002-of-00003.gguf");
  // Part 2 again under the name of part 3.
  fs::copy_file(Path(Name(2)), Path(Name(3)));
  EXPECT_EQ(Refusal(Name(1)), Path(Name(3)) + ": key \"split.no\": is 1, expected 2 as the file's name says");
  Patch(3, "split.no", std::string("\2\0", 2));
  EXPECT_EQ(Refusal(Name(1)), Path(Name(3)) + ": tensor \"tensor.0\" is there twice, also in " + Path(Name(2)));
}

TEST_F(GgufSplitTest, CountsMustAgree) {
  Patch(1, "split.tensors.count", std::string("\6\0\0\0", 4));
  EXPECT_EQ(Refusal(Name(1)),
            Path(Name(1)) + ": key \"split.tensors.count\": is 6, expected 5, as many as all parts have");
  Patch(3, "split.count", std::string("\4\0", 2));
  EXPECT_EQ(Refusal(Name(1)), Path(Name(3)) + ": key \"split.count\": is 4, expected 3 as in " + Path(Name(1)));
  Patch(1, "split.no", std::string("\3\0", 2));
  EXPECT_EQ(Refusal(Name(1)), Path(Name(1)) + ": key \"split.no\": is 3, expected a whole number from 0 to 2");
  Patch(1, "split.count", std::string("\0\0", 2));
  EXPECT_EQ(Refusal(Name(1)), Path(Name(1)) + ": key \"split.count\": is 0, expected a whole number from 1 to 99999");
}

}  // namespace
}  // namespace kvm
