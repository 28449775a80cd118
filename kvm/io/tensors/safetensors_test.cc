#include "kvm/io/tensors/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

std::string Path(const std::string& name) { return testing::TempDir() + "/" + name; }

std::string LengthBytes(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(length >> (8 * i) & 0xff));
  return bytes;
}

std::string FileBytes(const std::string& header, const std::string& data) {
  return LengthBytes(header.size()) + header + data;
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> OpenBytes(const std::string& bytes) {
  const std::string path = Path("bytes.safetensors");
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  return SafetensorsFile::Open(path);
}

// A header with `fields` as tensor w.
std::string Entry(const std::string& fields) { return absl::StrCat("{\"w\":{", fields, "}}"); }

// Two floats and a byte, as the Python library (safetensors 0.8.0) wrote them.
std::string PythonFile() {
  return LengthBytes(0x90) +
         R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
         R"("t":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}}       )" +
         std::string("\x00\x00\x80\x3f\x00\x00\x00\xc0\x03", 9);
}

TEST(SafetensorsFile, ReadsWhatPythonWrote) {
  const auto opened = OpenBytes(PythonFile());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const SafetensorsFile& file = **opened;
  EXPECT_THAT(file.Names(), ElementsAre("t", "w"));
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("format", "pt")));
  EXPECT_EQ(file.Description(), Path("bytes.safetensors"));
  ASSERT_NE(file.Find("w"), nullptr);
  EXPECT_EQ(file.Find("w")->dtype, DType::kF32);
  EXPECT_THAT(file.Find("w")->shape, ElementsAre(2));
  EXPECT_THAT(ReadFloats(*file.Find("w")), ElementsAre(1.0f, -2.0f));
  ASSERT_NE(file.Find("t"), nullptr);
  EXPECT_EQ(file.Find("t")->dtype, DType::kU8);
  EXPECT_THAT(ReadFloats(*file.Find("t")), ElementsAre(3.0f));
  EXPECT_EQ(file.Find("x"), nullptr);
  EXPECT_EQ(file.Find(""), nullptr);
}

TEST(SafetensorsFile, ReadsEmptyFilesScalarsEmptyTensorsAndUnalignedData) {
  const auto none = OpenBytes(FileBytes("{}", ""));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT((*none)->Names(), IsEmpty());

  // An empty tensor before, between and after others; a header whose length is odd; data that is not in name order.
  const auto mixed = OpenBytes(FileBytes(R"({"z":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)"
                                         R"("a":{"dtype":"F32","shape":[1],"data_offsets":[1,5]},)"
                                         R"("e0":{"dtype":"F64","shape":[0,3],"data_offsets":[0,0]},)"
                                         R"("e1":{"dtype":"I64","shape":[576460752303423488,0],"data_offsets":[1,1]},)"
                                         R"("e5":{"shape":[0],"data_offsets":[5,5],"dtype":"BOOL"}} )",
                                         std::string("\x07\x00\x00\x00\x3f", 5)));
  ASSERT_TRUE(mixed.ok()) << mixed.status();
  EXPECT_THAT(ReadFloats(*(*mixed)->Find("z")), ElementsAre(7.0f));
  EXPECT_THAT((*mixed)->Find("z")->shape, IsEmpty());
  EXPECT_THAT(ReadFloats(*(*mixed)->Find("a")), ElementsAre(0.5f));
  EXPECT_EQ((*mixed)->Find("e1")->num_elements(), 0);
  EXPECT_THAT(ReadFloats(*(*mixed)->Find("e0")), IsEmpty());
}

TEST(SafetensorsFile, TakesMetadataOfNullForNone) {
  const std::string tensor = R"("w":{"dtype":"U8","shape":[],"data_offsets":[0,1]})";
  for (const std::string& header :
       {R"({"__metadata__":null,)" + tensor + "}", "{" + tensor + R"(,"__metadata__":null})"}) {
    const auto file = OpenBytes(FileBytes(header, "\x07"));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_THAT((*file)->metadata(), IsEmpty());
    EXPECT_THAT(ReadFloats(*(*file)->Find("w")), ElementsAre(7.0f));
  }
  EXPECT_THAT(std::string(OpenBytes(FileBytes(R"({"__metadata__":null,"__metadata__":{}})", "")).status().message()),
              HasSubstr("__metadata__ appears twice"));
  EXPECT_THAT(std::string(OpenBytes(FileBytes(R"({"__metadata__":{"a":null}})", "")).status().message()),
              HasSubstr("\"a\" is null; expected a string"));
}

TEST(SafetensorsFile, NamesAFileThatIsNotThere) {
  const absl::Status status = SafetensorsFile::Open(Path("absent")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("absent")));
}

struct Refusal {
  std::string bytes;
  std::string message;
};

void ExpectRefused(const Refusal& refusal) {
  SCOPED_TRACE(refusal.bytes.substr(0, 200));
  const absl::Status status = OpenBytes(refusal.bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("bytes.safetensors")));
  EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.message));
}

TEST(SafetensorsFile, RefusesBrokenFraming) {
  const Refusal refusals[] = {
      {"", "the file has 0 bytes; expected at least 8"},
      {"\x02", "the file has 1 bytes"},
      {std::string(7, '\0'), "the file has 7 bytes"},
      {std::string(8, '\0'), "does not begin with '{'"},
      {LengthBytes(2) + "{", "the file is cut short: a header of 2 bytes and only 1 bytes after its length"},
      {LengthBytes(100000001) + "{}", "a header of 100000001 bytes; expected at most 100000000"},
      {LengthBytes(~uint64_t{0}) + "{}", "a header of 18446744073709551615 bytes"},
      {LengthBytes(uint64_t{1} << 63) + "{}", "a header of 9223372036854775808 bytes"},
      {FileBytes(" {}", ""), "does not begin with '{'"},
      {FileBytes("[]", ""), "does not begin with '{'"},
      {FileBytes("\"w\"", ""), "does not begin with '{'"},
      {PythonFile().substr(0, 100), "the file is cut short: a header of 144 bytes and only 92 bytes after its length"},
  };
  for (const Refusal& refusal : refusals) ExpectRefused(refusal);
}

TEST(SafetensorsFile, SaysWhatAMistakenFileLooksLike) {
  const Refusal refusals[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n", "Git LFS pointer"},
      {"<!DOCTYPE html>\n<html></html>", "HTML page"},
      {"\n\n<HTML><body>Not found</body></HTML>", "HTML page"},
      {std::string("PK\x03\x04\x00\x00\x08\x08\x00\x00 archive/data.pkl", 27), "zip archive"},
      {std::string("PK\x03\x04\x00\x00\x00\x00 archive/data.pkl", 25), "zip archive"},
      {std::string("\x80\x02\x8a\x0al\xfc\x9c", 7), "pickle"},
      {std::string("GGUF\x03\x00\x00\x00\x01", 9), "GGUF"},
      {"{\n  \"metadata\": {\"total_size\": 5}}", "looks like JSON"},
  };
  for (const Refusal& refusal : refusals) ExpectRefused(refusal);
}

TEST(SafetensorsFile, RefusesHeadersThatAreNotJson) {
  const Refusal refusals[] = {
      {FileBytes("{", ""), "not JSON at byte"},
      {FileBytes("{}}", ""), "not JSON at byte 3"},
      {FileBytes("{} {}", ""), "not JSON"},
      {FileBytes("{\"w\":}", ""), "not JSON"},
      {FileBytes("{'w':1}", ""), "not JSON"},
      {FileBytes("{/**/}", ""), "not JSON"},
      {FileBytes(std::string("{}\0\0", 4), ""), "header: not JSON at byte 3 (line 1, column 3): a zero byte"},
      {FileBytes(std::string("{\"\0\":1}", 7), ""), "a zero byte"},
      {FileBytes("{\"\xff\":1}", ""), "not JSON"},
      {FileBytes("{\"\xed\xa0\x80\":1}", ""), "not JSON"},
      {FileBytes(R"({"\ud800":1})", ""), "not JSON"},
      {FileBytes(Entry(R"("dtype":"U8","shape":[1e999],"data_offsets":[0,1])"), "x"), "number out of range"},
  };
  for (const Refusal& refusal : refusals) ExpectRefused(refusal);
}

TEST(SafetensorsFile, RefusesWrongTypesNamingWhere) {
  const Refusal refusals[] = {
      {FileBytes(R"({"w":1})", ""), R"(tensor "w" is the number 1; expected an object)"},
      {FileBytes(R"({"w":[]})", ""), R"(tensor "w" is an array; expected an object)"},
      {FileBytes(R"({"w":null})", ""), R"(tensor "w" is null; expected an object)"},
      {FileBytes(R"({"w\n":true})", ""), R"(tensor "w\x0a" is true; expected an object)"},
      {FileBytes(R"({"__metadata__":"x"})", ""), R"(__metadata__ is the string "x"; expected an object)"},
      {FileBytes(R"({"__metadata__":{"k":1}})", ""), R"(__metadata__: "k" is the number 1; expected a string)"},
      {FileBytes(R"({"__metadata__":{"k":{}}})", ""), R"(__metadata__: "k" is an object; expected a string)"},
      {FileBytes(R"({"__metadata__":{"k":["v"]}})", ""), R"(__metadata__: "k" is an array; expected a string)"},
      {FileBytes(Entry(R"("dtype":5)"), ""), R"(tensor "w": dtype is the number 5; expected a string)"},
      {FileBytes(Entry(R"("dtype":["F32"])"), ""), "dtype is an array; expected a string"},
      {FileBytes(Entry(R"("shape":"2")"), ""), R"(shape is the string "2"; expected an array of integers)"},
      {FileBytes(Entry(R"("shape":{})"), ""), "shape is an object; expected an array of integers"},
      {FileBytes(Entry(R"("shape":[-1])"), ""), R"(tensor "w": shape contains the number -1; expected integers)"},
      {FileBytes(Entry(R"("shape":[2.0])"), ""), "shape contains the number 2.0"},
      {FileBytes(Entry(R"("shape":[1e2])"), ""), "shape contains the number 1e2"},
      {FileBytes(Entry(R"("shape":["2"])"), ""), R"(shape contains the string "2")"},
      {FileBytes(Entry(R"("shape":[[2]])"), ""), "shape contains an array"},
      {FileBytes(Entry(R"("shape":[false])"), ""), "shape contains false"},
      {FileBytes(Entry(R"("shape":[18446744073709551616])"), ""), "shape contains the number 18446744073709551616"},
      {FileBytes(Entry(R"("data_offsets":[0,null])"), ""), "data_offsets contains null"},
      {FileBytes(Entry(R"("data_offsets":8)"), ""), "data_offsets is the number 8; expected an array of integers"},
      {FileBytes("{\"w\":" + std::string(100000, '[') + std::string(100000, ']') + "}", ""), "\"w\" is an array"},
      {FileBytes(Entry("\"shape\":" + std::string(100000, '[')), ""), "shape contains an array"},
  };
  for (const Refusal& refusal : refusals) ExpectRefused(refusal);
}

TEST(SafetensorsFile, RefusesRepeatedUnknownAndMissingKeys) {
  const std::string good = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  const Refusal refusals[] = {
      {FileBytes("{\"w\":" + good + ",\"w\":" + good + "}", "x"), R"(tensor "w" appears twice)"},
      {FileBytes("{\"w\":" + good + ",\"\\u0077\":" + good + "}", "x"), R"(tensor "w" appears twice)"},
      {FileBytes(R"({"__metadata__":{},"__metadata__":{}})", ""), "__metadata__ appears twice"},
      {FileBytes(R"({"__metadata__":{"k":"1","k":"1"}})", ""), R"(__metadata__ has the key "k" twice)"},
      {FileBytes(Entry(R"("dtype":"U8","dtype":"U8")"), ""), R"(tensor "w" has the field dtype twice)"},
      {FileBytes(Entry(R"("shape":[],"shape":[])"), ""), R"(tensor "w" has the field shape twice)"},
      {FileBytes(Entry(R"("strides":[1])"), ""), R"(tensor "w" has the field "strides"; expected dtype, shape and)"},
      {FileBytes(Entry(""), ""), R"(tensor "w" has no dtype)"},
      {FileBytes(Entry(R"("shape":[1],"data_offsets":[0,1])"), "x"), R"(tensor "w" has no dtype)"},
      {FileBytes(Entry(R"("dtype":"U8","data_offsets":[0,1])"), "x"), R"(tensor "w" has no shape)"},
      {FileBytes(Entry(R"("dtype":"U8","shape":[1])"), "x"), R"(tensor "w" has no data_offsets)"},
  };
  for (const Refusal& refusal : refusals) ExpectRefused(refusal);
}

TEST(SafetensorsFile, RefusesImpossibleEntries) {
  const auto file = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return FileBytes(
        Entry(absl::StrCat("\"dtype\":\"", dtype, "\",\"shape\":[", shape, "],\"data_offsets\":[", offsets, "]")),
        "12345678");
  };
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  const Refusal refusals[] = {
      {file("F8_E4M3", "8", "0,8"), R"(tensor "w" has dtype "F8_E4M3"; expected one of BOOL, U8)"},
      {file("f32", "2", "0,8"), R"(dtype "f32")"},
      {file("", "2", "0,8"), R"(dtype "")"},
      {file("F32", "2", ""), "data_offsets has 0 numbers; expected two"},
      {file("F32", "2", "8"), "data_offsets has 1 numbers; expected two"},
      {file("F32", "2", "0,8,8"), "data_offsets has more than two numbers"},
      {file("F32", "2", "8,0"), "data_offsets [8, 0] end before they begin"},
      {file("F32", "2", "8,16"),
       "data_offsets [8, 16] lie beyond the file's 8 bytes of data: the file is cut short or the header wrong"},
      {file("F32", "2", "0,18446744073709551615"), "lie beyond the file's 8 bytes of data"},
      {file("F32", "3", "0,8"), R"(tensor "w": data_offsets [0, 8] span 8 bytes; expected 12 for F32 [3])"},
      {file("F32", "", "0,8"), "expected 4 for F32 []"},
      {file("F32", "2,0", "0,8"), "expected 0 for F32 [2, 0]"},
      // 2^62 floats are 2^64 bytes, which 64 bits would show as 0.
      {file("F32", "4611686018427387904", "0,0"), "shape is too large"},
      {file("U8", "4294967296,4294967296", "0,0"), "shape is too large"},
      {file("U8", "9223372036854775808", "0,8"), "shape is too large"},
      {file("U8", "0,4294967296,4294967296", "0,0"), "shape is too large"},
      {file("U8", ones, "0,1"), "shape has more than 64 extents"},
  };
  for (const Refusal& refusal : refusals) ExpectRefused(refusal);
}

TEST(SafetensorsFile, RefusesBytesThatAreSharedOrBelongToNoTensor) {
  const auto two = [](const std::string& a, const std::string& b, const std::string& data) {
    return FileBytes(absl::StrCat(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[)", a,
                                  R"(]},"b":{"dtype":"U8","shape":[4],"data_offsets":[)", b, "]}}"),
                     data);
  };
  const std::string empty_inside =
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"e":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})";
  const Refusal refusals[] = {
      {two("0,4", "3,7", "1234567"), R"(tensor "b" overlaps tensor "a": it begins at byte 3 of the data; expected 4)"},
      {two("3,7", "0,4", "1234567"), R"(tensor "a" overlaps tensor "b")"},
      {two("0,4", "0,4", "1234"), R"(tensor "b" overlaps tensor "a")"},
      {two("0,4", "5,9", "123456789"), R"(tensor "b" leaves a gap after tensor "a": it begins at byte 5)"},
      {two("1,5", "5,9", "123456789"), R"(tensor "a" leaves a gap after the header)"},
      {two("0,4", "4,8", "123456789"), R"(1 bytes belong to no tensor after tensor "b")"},
      {two("0,4", "4,8", "1234567"), "lie beyond the file's 7 bytes"},
      {FileBytes(empty_inside, "1234"), R"(tensor "e" overlaps tensor "a")"},
      {FileBytes("{}", "x"), "1 bytes belong to no tensor after the header"},
      {PythonFile() + "\n", R"(1 bytes belong to no tensor after tensor "t")"},
  };
  for (const Refusal& refusal : refusals) ExpectRefused(refusal);
}

TEST(SafetensorsFile, CutsLongNamesInMessages) {
  const std::string name(5000, 'n');
  const absl::Status status = OpenBytes(FileBytes("{\"" + name + "\":1}", "")).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("nnn...\" is the number 1"));
  EXPECT_LT(status.message().size(), 600u);
}

TEST(SafetensorsFile, SurvivesEveryTruncation) {
  const std::string bytes = PythonFile();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const absl::Status status = OpenBytes(bytes.substr(0, size)).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << size;
  }
}

// Whatever a byte of length or header becomes, the file is refused or all its tensors can be read.
TEST(SafetensorsFile, SurvivesEveryChangeOfOneByteOfTheHeader) {
  const std::string bytes = PythonFile();
  const std::string path = Path("changed.safetensors");
  std::ofstream(path, std::ios::binary) << bytes;
  const int fd = open(path.c_str(), O_WRONLY);
  ASSERT_GE(fd, 0);
  for (size_t i = 0; i < bytes.size() - 9; ++i) {
    for (int change = 1; change < 256; ++change) {
      const char changed = static_cast<char>(bytes[i] ^ change);
      ASSERT_EQ(pwrite(fd, &changed, 1, static_cast<off_t>(i)), 1);
      const auto opened = SafetensorsFile::Open(path);
      if (!opened.ok()) {
        ASSERT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument) << opened.status();
        continue;
      }
      for (const std::string& name : (*opened)->Names()) {
        const TensorView& tensor = *(*opened)->Find(name);
        ASSERT_EQ(ReadFloats(tensor).size(), static_cast<size_t>(tensor.num_elements()));
      }
    }
    ASSERT_EQ(pwrite(fd, &bytes[i], 1, static_cast<off_t>(i)), 1);
  }
  close(fd);
}

std::string Slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(WriteSafetensors, WritesPythonsBytes) {
  const float floats[] = {1.0f, -2.0f};
  const uint8_t byte = 3;
  const std::string path = Path("two.safetensors");
  const absl::Status written =
      WriteSafetensors(path, {{"t", {DType::kU8, {1}, &byte}}, {"w", {DType::kF32, {2}, floats}}}, {{"format", "pt"}});
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_EQ(Slurp(path), PythonFile());

  ASSERT_TRUE(WriteSafetensors(path, {}).ok());
  EXPECT_EQ(Slurp(path), LengthBytes(8) + "{}      ");
}

// All dtypes in Python's order, scalars, empty tensors and a name with everything that JSON escapes, as Python's
// library wrote them.
TEST(WriteSafetensors, OrdersAndEscapesAsPython) {
  const uint64_t zeros[8] = {};
  const std::string path = Path("order.safetensors");
  const absl::Status written = WriteSafetensors(path, {{"b", {DType::kF32, {2, 3}, zeros}},
                                                       {"a", {DType::kF32, {2}, zeros}},
                                                       {"z.i", {DType::kI64, {}, zeros}},
                                                       {"u", {DType::kU8, {3}, zeros}},
                                                       {"q", {DType::kBool, {2}, zeros}},
                                                       {"h", {DType::kF16, {1}, zeros}},
                                                       {"e", {DType::kI32, {0, 4}, nullptr}},
                                                       {"f64", {DType::kF64, {1}, zeros}},
                                                       {"u64", {DType::kU64, {1}, zeros}},
                                                       {"i8", {DType::kI8, {1}, zeros}},
                                                       {"i16", {DType::kI16, {1}, zeros}},
                                                       {"u16", {DType::kU16, {1}, zeros}},
                                                       {"u32", {DType::kU32, {1}, zeros}},
                                                       {"n\"\\\n\x01é/\x7f", {DType::kI32, {1}, zeros}}});
  ASSERT_TRUE(written.ok()) << written;
  const std::string header = R"({"u64":{"dtype":"U64","shape":[1],"data_offsets":[0,8]},)"
                             R"("z.i":{"dtype":"I64","shape":[],"data_offsets":[8,16]},)"
                             R"("f64":{"dtype":"F64","shape":[1],"data_offsets":[16,24]},)"
                             R"("a":{"dtype":"F32","shape":[2],"data_offsets":[24,32]},)"
                             R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[32,56]},)"
                             R"("u32":{"dtype":"U32","shape":[1],"data_offsets":[56,60]},)"
                             R"("e":{"dtype":"I32","shape":[0,4],"data_offsets":[60,60]},)"
                             "\"n\\\"\\\\\\n\\u0001é/\x7f\":"
                             R"({"dtype":"I32","shape":[1],"data_offsets":[60,64]},)"
                             R"("h":{"dtype":"F16","shape":[1],"data_offsets":[64,66]},)"
                             R"("u16":{"dtype":"U16","shape":[1],"data_offsets":[66,68]},)"
                             R"("i16":{"dtype":"I16","shape":[1],"data_offsets":[68,70]},)"
                             R"("i8":{"dtype":"I8","shape":[1],"data_offsets":[70,71]},)"
                             R"("u":{"dtype":"U8","shape":[3],"data_offsets":[71,74]},)"
                             R"("q":{"dtype":"BOOL","shape":[2],"data_offsets":[74,76]}})";
  const std::string padding((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(Slurp(path), FileBytes(header + padding, std::string(76, '\0')));
}

TEST(WriteSafetensors, IsReadBack) {
  const float floats[] = {0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f};
  const int64_t integer = -7;
  const std::string path = Path("back.safetensors");
  const std::string name = "α \"quoted\"\t\x02";
  ASSERT_TRUE(
      WriteSafetensors(path, {{name, {DType::kF32, {3, 2}, floats}}, {"", {DType::kI64, {}, &integer}}}, {{"k", "v\n"}})
          .ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT((*file)->Names(), ElementsAre("", name));
  EXPECT_THAT((*file)->Find(name)->shape, ElementsAre(3, 2));
  EXPECT_THAT(ReadFloats(*(*file)->Find(name)), ElementsAre(0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f));
  EXPECT_THAT(ReadFloats(*(*file)->Find("")), ElementsAre(-7.0f));
  EXPECT_THAT((*file)->metadata(), ElementsAre(Pair("k", "v\n")));
}

TEST(WriteSafetensors, RefusesNamesThatNoReaderWouldAccept) {
  const uint8_t byte = 1;
  const TensorView tensor = {DType::kU8, {1}, &byte};
  const std::string path = Path("refused.safetensors");
  const struct {
    std::vector<NamedTensorView> tensors;
    std::map<std::string, std::string> metadata;
    std::string message;
  } cases[] = {
      {{{"w", tensor}, {"v", tensor}, {"w", {DType::kI8, {1}, &byte}}}, {}, "two tensors are called \"w\""},
      {{{"__metadata__", tensor}}, {}, "no tensor can be called __metadata__"},
      {{{"\xff", tensor}}, {}, "must be UTF-8, which \"\\xff\" is not"},
      {{{"w", tensor}}, {{"k", "\xc3"}}, "must be UTF-8"},
      {{{"w", tensor}}, {{"\xc3", "v"}}, "must be UTF-8"},
  };
  for (const auto& c : cases) {
    const absl::Status status = WriteSafetensors(path, c.tensors, c.metadata);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(WriteSafetensors, NamesAFolderThatDoesNotExist) {
  const absl::Status status = WriteSafetensors(Path("absent/w.safetensors"), {});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("absent/w.safetensors")));
}

}  // namespace
}  // namespace kvm
