#include "kvm/io/torch/torch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/torch/hand_made_torch.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Data(const std::string& name) { return "testing/data/rwkv_pth/" + name; }
std::string Path(const std::string& name) { return ::testing::TempDir() + "/" + name; }

std::unique_ptr<TorchFile> Open(const std::string& path) {
  auto file = TorchFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? std::move(*file) : nullptr;
}

std::vector<float> Floats(const TorchFile& file, const std::string& name) {
  const TensorView* tensor = file.Find(name);
  EXPECT_NE(tensor, nullptr) << name;
  return tensor == nullptr ? std::vector<float>() : ReadFloats(*tensor);
}

std::vector<float> Range(float from, float to, float step = 1) {
  std::vector<float> values;
  for (float x = from; x < to; x += step) values.push_back(x);
  return values;
}

void ExpectRefused(const std::string& path, const std::string& message) {
  const auto file = TorchFile::Open(path);
  ASSERT_FALSE(file.ok()) << path;
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(file.status().message()), ::testing::StartsWith(path + ": "));
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(message));
}

TEST(TorchFile, ReadsViewsOfOneStorage) {
  const auto file = Open(Data("views.pth"));
  ASSERT_NE(file, nullptr);
  EXPECT_THAT(file->Names(), ElementsAre("all", "column", "empty", "every_other", "matrix", "ones_in_shape", "rows",
                                         "scalar", "tail", "transposed"));
  EXPECT_EQ(Floats(*file, "all"), Range(0, 24));
  EXPECT_THAT(file->Find("matrix")->shape, ElementsAre(4, 6));
  EXPECT_EQ(file->Find("matrix")->data, file->Find("all")->data);
  EXPECT_THAT(file->Find("rows")->shape, ElementsAre(2, 6));
  EXPECT_EQ(Floats(*file, "rows"), Range(6, 18));
  EXPECT_EQ(Floats(*file, "tail"), Range(20, 24));
  EXPECT_THAT(file->Find("transposed")->shape, ElementsAre(6, 4));
  EXPECT_THAT(Floats(*file, "transposed"),
              ElementsAre(0, 6, 12, 18, 1, 7, 13, 19, 2, 8, 14, 20, 3, 9, 15, 21, 4, 10, 16, 22, 5, 11, 17, 23));
  EXPECT_THAT(Floats(*file, "column"), ElementsAre(2, 8, 14, 20));
  EXPECT_EQ(Floats(*file, "every_other"), Range(0, 24, 2));
  EXPECT_THAT(file->Find("scalar")->shape, IsEmpty());
  EXPECT_THAT(Floats(*file, "scalar"), ElementsAre(2.5f));
  EXPECT_THAT(file->Find("empty")->shape, ElementsAre(0, 3));
  EXPECT_EQ(file->Find("ones_in_shape")->data, file->Find("all")->data);
  EXPECT_EQ(file->Find("absent"), nullptr);
  EXPECT_EQ(file->Description(), Data("views.pth"));
  EXPECT_TRUE(file->CheckContents({}).ok());
}

TEST(TorchFile, ReadsAllDTypes) {
  const auto file = Open(Data("dtypes.pth"));
  ASSERT_NE(file, nullptr);
  const std::map<std::string, DType> dtypes = {
      {"float64", DType::kF64}, {"float32", DType::kF32}, {"float16", DType::kF16}, {"bfloat16", DType::kBF16},
      {"int64", DType::kI64},   {"int32", DType::kI32},   {"int16", DType::kI16},   {"int8", DType::kI8},
      {"uint8", DType::kU8},    {"bool", DType::kBool},   {"uint16", DType::kU16},  {"uint32", DType::kU32},
      {"uint64", DType::kU64}};
  EXPECT_EQ(file->Names().size(), dtypes.size());
  for (const auto& [name, dtype] : dtypes) {
    ASSERT_NE(file->Find(name), nullptr) << name;
    EXPECT_EQ(file->Find(name)->dtype, dtype) << name;
    const bool late = name.substr(0, 2) == "ui" && name != "uint8";
    EXPECT_EQ(Floats(*file, name), late ? std::vector<float>({7, 8, 9}) : std::vector<float>({0, 1, 1, 0, 1})) << name;
  }
}

TEST(TorchFile, ReadsStateDictsAndParametersInAllForms) {
  for (const char* name : {"state_dict.pth", "parameters.pth", "protocol4.pth", "zip64.pth"}) {
    SCOPED_TRACE(name);
    const auto file = Open(Data(name));
    ASSERT_NE(file, nullptr);
    EXPECT_THAT(file->Names(), ElementsAre("0.bias", "0.weight", "1.bias", "1.weight"));
    EXPECT_THAT(file->Find("0.weight")->shape, ElementsAre(2, 3));
    EXPECT_EQ(Floats(*file, "0.weight"), Range(0, 6));
    EXPECT_THAT(Floats(*file, "0.bias"), ElementsAre(10, 11));
    EXPECT_THAT(Floats(*file, "1.weight"), ElementsAre(20, 21));
    EXPECT_THAT(Floats(*file, "1.bias"), ElementsAre(30, 31));
    EXPECT_TRUE(file->CheckContents({}).ok());
  }
}

TEST(TorchFile, ItsMemoryOutlivesIt) {
  auto file = Open(Data("views.pth"));
  ASSERT_NE(file, nullptr);
  const std::shared_ptr<const void> memory = file->Memory();
  const TensorView in_place = *file->Find("tail"), copied = *file->Find("column");
  file = nullptr;
  EXPECT_EQ(ReadFloats(in_place), Range(20, 24));
  EXPECT_THAT(ReadFloats(copied), ElementsAre(2, 8, 14, 20));
}

TEST(TorchFile, RefusesByName) {
  ExpectRefused(Data("malicious.pth"), "the pickle asks for \"posix.system\", which is refused");
  ExpectRefused(Data("complex.pth"),
                "the pickle asks for \"torch.ComplexFloatStorage\", which is refused; expected only "
                "tensors of float64, float32, float16, bfloat16, bool and whole numbers");
  ExpectRefused(Data("list.pth"), "holds a list, expected a dict of names and tensors");
  ExpectRefused(Data("not_only_tensors.pth"), "tensor \"step\": is a whole number, expected a tensor");
  ExpectRefused(Data("deflated.pth"), "is compressed by method 8 (deflate)");
  ExpectRefused(Data("expanded.pth"), "must be copied and takes more room than the file");
  ExpectRefused(Data("legacy.pth"), "it looks like a pickle, as PyTorch checkpoints were before version 1.6");
  ExpectRefused(Data("x070_expected.safetensors"), "it looks like a safetensors file");
  EXPECT_EQ(TorchFile::Open(Path("absent")).status().code(), absl::StatusCode::kNotFound);
}

TEST(TorchFile, NamesWhatIsNoTorchFile) {
  const std::map<std::string, std::string> files = {
      {"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"},
      {"<!DOCTYPE html>", "HTML page"},
      {"GGUF\x03", "GGUF"},
      {"", "not a PyTorch checkpoint, which is a zip archive"},
  };
  for (const auto& [bytes, message] : files) {
    ASSERT_TRUE(WriteFileAtomically(Path("mistaken.pth"), bytes).ok());
    ExpectRefused(Path("mistaken.pth"), message);
  }
}

// Archives made by hand.

struct HandMade {
  std::string type = "FloatStorage";
  int64_t elements = 4;
  int64_t offset = 0;
  std::vector<int64_t> shape = {4};
  std::vector<int64_t> strides = {1};
  std::string key = "0";
};

// A dict of one tensor for every description.
std::string PickleOf(const std::vector<std::pair<std::string, HandMade>>& tensors) {
  std::string pickle = "\x80\x02}(";
  for (const auto& [name, t] : tensors) {
    absl::StrAppend(&pickle, PickledText(name), "ctorch._utils\n_rebuild_tensor_v2\n((", PickledText("storage"),
                    "ctorch\n", t.type, "\n", PickledText(t.key), PickledText("cpu"), PickledInt(t.elements), "tQ",
                    PickledInt(t.offset));
    absl::StrAppend(&pickle, PickledTuple(t.shape), PickledTuple(t.strides), "\x89}tR");
  }
  return pickle + "u.";
}

std::string Made(const std::string& pickle, const std::vector<std::pair<std::string, std::string>>& more = {}) {
  const std::string path = Path("made.pth");
  std::vector<std::pair<std::string, std::string>> entries = {{"n/data.pkl", pickle},
                                                              {"n/data/0", std::string(16, '\0')}};
  entries.insert(entries.end(), more.begin(), more.end());
  WriteZip(path, entries);
  return path;
}

TEST(TorchFile, RefusesTensorsThatDoNotFitTheirStorage) {
  const auto open = [](const HandMade& tensor) { return Made(PickleOf({{"w", tensor}})); };
  EXPECT_TRUE(TorchFile::Open(open({})).ok());
  constexpr int64_t kHuge = int64_t{1} << 62;
  const struct {
    HandMade tensor;
    std::string message;
  } cases[] = {
      {{"FloatStorage", 5}, "entry \"n/data/0\" has 16 bytes, expected 20"},
      {{"HalfStorage", 4}, "entry \"n/data/0\" has 16 bytes, expected 8"},
      {{"FloatStorage", 4, 1}, "shape [4] with strides [1] at element 1 reaches beyond its storage of 4 elements"},
      {{"FloatStorage", 4, 0, {5}}, "reaches beyond its storage"},
      {{"FloatStorage", 4, 0, {2, 3}, {3, 1}}, "reaches beyond its storage"},
      {{"FloatStorage", 4, 0, {2}, {4}}, "reaches beyond its storage"},
      {{"FloatStorage", 4, 4, {1}, {1}}, "reaches beyond its storage"},
      {{"FloatStorage", 4, 4, {}, {}}, "reaches beyond its storage"},
      {{"FloatStorage", 4, 5, {0}, {1}}, "reaches beyond its storage"},
      {{"FloatStorage", 4, 0, {3, 3}, {kHuge, kHuge}}, "reaches beyond its storage"},
      {{"FloatStorage", 4, kHuge, {1}, {1}}, "reaches beyond its storage"},
      {{"FloatStorage", kHuge}, "a storage of 4611686018427387904 elements"},
      {{"FloatStorage", 4, 0, {kHuge, kHuge}, {0, 0}}, "is too large"},
      {{"FloatStorage", 4, 0, {kHuge, kHuge, 0}, {1, 1, 1}}, "is too large"},
      {{"FloatStorage", 4, 0, {1 << 20, 1 << 20}, {0, 0}}, "takes more room than the file"},
      {{"FloatStorage", 4, 0, {4}, {-1}}, "not nonnegative whole numbers"},
      {{"FloatStorage", 4, 0, {-4}, {1}}, "not nonnegative whole numbers"},
      {{"FloatStorage", 4, -1}, "not nonnegative whole numbers"},
      {{"FloatStorage", 4, 0, {4}, {1, 1}}, "not nonnegative whole numbers"},
      {{"FloatStorage", -4}, "its storage is not named as torch names storages"},
      {{"FloatStorage", 4, 0, std::vector<int64_t>(65, 1), std::vector<int64_t>(65, 1)}, "at most 64"},
      {{"FloatStorage", 4, 0, {4}, {1}, "1"}, "no entry \"data/1\""},
      {{"FloatStorage", 4, 0, {4}, {1}, "../0"}, "no entry \"data/../0\""},
      {{"float32", 4}, "its storage is not named as torch names storages"},
  };
  for (const auto& c : cases) ExpectRefused(open(c.tensor), "tensor \"w\": ");
  for (const auto& c : cases) ExpectRefused(open(c.tensor), c.message);
}

TEST(TorchFile, CopiesNoMoreThanTheFileHolds) {
  // 1024 transposed views of one storage.
  std::vector<std::pair<std::string, HandMade>> tensors;
  for (int i = 0; i < 1024; ++i) tensors.push_back({absl::StrCat("w", i), {"FloatStorage", 4, 0, {2, 2}, {1, 2}}});
  const std::string path = Made(PickleOf(tensors));
  EXPECT_TRUE(TorchFile::Open(path).ok());  // their descriptions are longer than their copies

  tensors.clear();
  for (int i = 0; i < 8; ++i) tensors.push_back({absl::StrCat("w", i), {"FloatStorage", 4096, 0, {64, 64}, {1, 64}}});
  WriteZip(Path("many.pth"), {{"n/data.pkl", PickleOf(tensors)}, {"n/data/0", std::string(16384, '\0')}});
  ExpectRefused(Path("many.pth"), "must be copied");
}

TEST(TorchFile, SharedStoragesDoNotMakeAHugeModelOfASmallFile) {
  const auto path_with = [](int count) {
    std::vector<std::pair<std::string, HandMade>> tensors;
    for (int i = 0; i < count; ++i) tensors.push_back({absl::StrCat("w", i), {"FloatStorage", 4096, 0, {4096}, {1}}});
    WriteZip(Path("shared.pth"), {{"n/data.pkl", PickleOf(tensors)}, {"n/data/0", std::string(16384, '\0')}});
    return Path("shared.pth");
  };
  EXPECT_TRUE(TorchFile::Open(path_with(12)).ok());
  ExpectRefused(path_with(64), "share storages");
}

TEST(TorchFile, RefusesOtherArchivesAndDicts) {
  const std::string plain = PickleOf({{"w", {}}});
  ExpectRefused(Made(PickleOf({{"w", {}}, {"w", {}}})), "tensor \"w\": is there twice");
  ExpectRefused(Made("\x80\x02}(K\x01Nu."), "a key of its dict is a whole number");
  ExpectRefused(Made("\x80\x02}(\x8c\x01wNu."), "tensor \"w\": is None, expected a tensor");
  ExpectRefused(Made("\x80\x02}(\x8c\x01wctorch._utils\n_rebuild_tensor_v2\n)Ru."), "made of 0 arguments, expected 6");
  ExpectRefused(Made("\x80\x02}(\x8c\x01wctorch\nFloatStorage\n)Ru."), "is an object, expected a tensor");
  ExpectRefused(Made("\x80\x02}(\x8c\x01wctorch._utils\n_rebuild_parameter\n)Ru."),
                "a parameter made of 0 arguments, expected 3");
  ExpectRefused(Made(plain, {{"n/byteorder", "big"}}), "byteorder is \"big\", expected \"little\"");
  ExpectRefused(Made(plain, {{"m/version", "3\n"}}), "entry \"m/version\" lies outside the folder \"n/\"");
  ExpectRefused(Made(plain, {{"n/constants.pkl", ""}}), "a TorchScript program");
  // Real ones have compressed entries as well, which are no fault of theirs.
  WriteZip(Path("script.pth"), {{"n/code/a.py", "x"}, {"n/constants.pkl", ""}, {"n/data.pkl", plain}});
  std::string script = *ReadFile(Path("script.pth"));
  script[script.find("PK\x01\x02") + 10] = 8;
  ASSERT_TRUE(WriteFileAtomically(Path("script.pth"), script).ok());
  ExpectRefused(Path("script.pth"), "a TorchScript program");
  WriteZip(Path("other.zip"), {{"mimetype", "text"}});
  ExpectRefused(Path("other.zip"), "a zip archive without an entry NAME/data.pkl");
  WriteZip(Path("empty.zip"), {});
  ExpectRefused(Path("empty.zip"), "a zip archive without an entry NAME/data.pkl");
}

TEST(TorchFile, ChecksSums) {
  std::string bytes = *ReadFile(Made(PickleOf({{"w", {}}})));
  bytes[bytes.find("_rebuild_tensor_v2")] = '-';
  ASSERT_TRUE(WriteFileAtomically(Path("damaged.pth"), bytes).ok());
  ExpectRefused(Path("damaged.pth"), "entry \"n/data.pkl\": its data have checksum");

  bytes = *ReadFile(Data("views.pth"));
  const float value = 7;
  std::string pattern(4, '\0');
  std::memcpy(pattern.data(), &value, 4);
  bytes[bytes.find(pattern)] = 1;
  ASSERT_TRUE(WriteFileAtomically(Path("damaged.pth"), bytes).ok());
  const auto file = Open(Path("damaged.pth"));
  ASSERT_NE(file, nullptr);
  EXPECT_THAT(std::string(file->CheckContents({}).message()),
              HasSubstr("entry \"views/data/0\": its data have checksum"));
}

// Every file that can be opened has tensors whose bytes can all be read.
void Touch(const std::string& path) {
  const auto file = TorchFile::Open(path);
  if (!file.ok()) return;
  for (const std::string& name : (*file)->Names()) ReadFloats(*(*file)->Find(name));
}

TEST(TorchFile, SurvivesEveryTruncationAndFlip) {
  for (const char* name : {"views.pth", "parameters.pth"}) {
    const std::string bytes = *ReadFile(Data(name));
    const std::string path = Path("swept.pth");
    ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
    const int fd = open(path.c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (const int mask : {0x01, 0x80, 0xff}) {
        const char flipped = static_cast<char>(bytes[i] ^ mask);
        ASSERT_EQ(pwrite(fd, &flipped, 1, static_cast<off_t>(i)), 1);
        Touch(path);
      }
      ASSERT_EQ(pwrite(fd, &bytes[i], 1, static_cast<off_t>(i)), 1);
    }
    EXPECT_TRUE(TorchFile::Open(path).ok());
    for (size_t size = bytes.size(); size-- > 0;) {
      ASSERT_EQ(ftruncate(fd, static_cast<off_t>(size)), 0);
      EXPECT_FALSE(TorchFile::Open(path).ok()) << size;
    }
    close(fd);
  }
}

// What written.pth holds.
const float kMatrix[] = {0.5f, -1.5f, 2.5f, 3.5f, -4.5f, 5.5f};
const uint16_t kHalves[] = {0x3f80, 0xc000, 0x7f80};
std::vector<NamedTensorView> WrittenTensors() {
  return {{"matrix", {DType::kF32, {2, 3}, kMatrix}},
          {"bf16", {DType::kBF16, {1, 1, 3}, kHalves}},
          {"scalar", {DType::kF32, {}, kMatrix}},
          {"empty", {DType::kF16, {0, 3}, nullptr}},
          {"n\xc3\xa4me", {DType::kU8, {5}, "\x01\x02\x03\x04\x05"}}};
}

// testing/data/rwkv_pth/make_rwkv_pth.py loads these bytes with PyTorch.
TEST(WriteTorchFile, WritesTheBytesThatPyTorchWasShown) {
  ASSERT_TRUE(WriteTorchFile(Path("written.pth"), WrittenTensors()).ok());
  EXPECT_EQ(*ReadFile(Path("written.pth")), *ReadFile(Data("written.pth")));
}

TEST(WriteTorchFile, IsReadBack) {
  const std::vector<int64_t> integers(70000, -7);
  std::vector<NamedTensorView> tensors = WrittenTensors();
  tensors.push_back({"long", {DType::kI64, {70, 1000}, integers.data()}});
  ASSERT_TRUE(WriteTorchFile(Path("back.pth"), tensors).ok());
  const auto file = Open(Path("back.pth"));
  ASSERT_NE(file, nullptr);
  EXPECT_TRUE(file->CheckContents({}).ok());
  EXPECT_EQ(file->Names().size(), tensors.size());
  for (const NamedTensorView& tensor : tensors) {
    const TensorView* read = file->Find(tensor.name);
    ASSERT_NE(read, nullptr) << tensor.name;
    EXPECT_EQ(read->dtype, tensor.tensor.dtype);
    EXPECT_EQ(read->shape, tensor.tensor.shape);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read->data) % 64, 0u) << tensor.name;
    if (read->byte_size() == 0) continue;
    EXPECT_EQ(std::memcmp(read->data, tensor.tensor.data, static_cast<size_t>(read->byte_size())), 0) << tensor.name;
  }
}

TEST(WriteTorchFile, RefusesWhatNoReaderWouldAccept) {
  const TensorView tensor = {DType::kF32, {1}, kMatrix};
  const auto message = [](const std::vector<NamedTensorView>& tensors) {
    const absl::Status status = WriteTorchFile(Path("refused.pth"), tensors);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(ReadFile(Path("refused.pth")).ok());
    return std::string(status.message());
  };
  EXPECT_THAT(message({{"w", tensor}, {"w", tensor}}), HasSubstr("tensor \"w\": is there twice"));
  EXPECT_THAT(message({{"\xff", tensor}}), HasSubstr("not UTF-8"));
  EXPECT_THAT(message({{"w", {DType::kU16, {1}, kMatrix}}}), HasSubstr("has dtype U16"));
}

}  // namespace
}  // namespace kvm
