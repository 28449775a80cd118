// Files that are refused, each with its message; and every file that is cut short.

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/gguf/gguf_file.h"
#include "testing/allocation_peak.h"
#include "testing/fuzz/memory_file.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

constexpr size_t kKiB = 1024;
constexpr uint64_t kHuge = uint64_t{1} << 63;

template <typename T>
std::string Bytes(T value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}
std::string U32(uint32_t value) { return Bytes(value); }
std::string U64(uint64_t value) { return Bytes(value); }
std::string Text(const std::string& text) { return U64(text.size()) + text; }

// A pair: key, type, value.
std::string Pair(const std::string& key, uint32_t type, const std::string& value) {
  return Text(key) + U32(type) + value;
}
std::string Tensor(const std::string& name, const std::vector<uint64_t>& extents, uint32_t type, uint64_t offset) {
  std::string bytes = Text(name) + U32(static_cast<uint32_t>(extents.size()));
  for (const uint64_t extent : extents) bytes += U64(extent);
  return bytes + U32(type) + U64(offset);
}
std::string File(const std::vector<std::string>& pairs, const std::vector<std::string>& tensors, size_t data_bytes,
                 size_t alignment = 32) {
  std::string bytes = "GGUF" + U32(3) + U64(tensors.size()) + U64(pairs.size());
  for (const std::string& pair : pairs) bytes += pair;
  for (const std::string& tensor : tensors) bytes += tensor;
  if (data_bytes > 0) bytes.resize((bytes.size() + alignment - 1) / alignment * alignment + data_bytes);
  return bytes;
}

MemoryFile InMemory(const std::string& bytes) {
  return MemoryFile(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

absl::StatusOr<std::unique_ptr<GgufFile>> OpenBytes(const std::string& bytes) {
  return GgufFile::Open(InMemory(bytes).path());
}

// What is said behind the path, with little memory taken.
std::string Refusal(const std::string& bytes, size_t most = 16 * kKiB) {
  const MemoryFile file = InMemory(bytes);
  absl::Status status;
  const size_t peak = AllocationPeak([&] { status = GgufFile::Open(file.path()).status(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_LE(peak, most) << status;
  EXPECT_LE(status.message().size(), kKiB) << status;
  absl::string_view message = status.message();
  EXPECT_TRUE(absl::ConsumePrefix(&message, file.path() + ": ")) << message;
  return std::string(message);
}

constexpr uint32_t kF32 = 0, kQ4_0 = 2;

TEST(GgufRefusals, TheFrame) {
  EXPECT_EQ(Refusal("{}"), "not a GGUF file, which begins with \"GGUF\"; it looks like JSON");
  EXPECT_EQ(Refusal(""), "not a GGUF file, which begins with \"GGUF\"; it is empty");
  EXPECT_EQ(Refusal("GGUF" + U32(1) + U64(0) + U64(0)), "GGUF version 1, expected 2 or 3");
  EXPECT_EQ(Refusal("GGUF" + U32(4) + U64(0) + U64(0)), "GGUF version 4, expected 2 or 3");
  EXPECT_EQ(Refusal("GGUF" + U32(0) + U64(0) + U64(0)), "GGUF version 0, expected 2 or 3");
  EXPECT_EQ(Refusal(*ReadFile("testing/data/gguf/big_endian.gguf")),
            "a big-endian GGUF file (version 3), expected a little-endian one");
  EXPECT_TRUE(OpenBytes("GGUF" + U32(2) + U64(0) + U64(0)).ok());
  for (const uint64_t count : {uint64_t{1}, uint64_t{1} << 32, kHuge, ~uint64_t{0}}) {
    EXPECT_EQ(Refusal("GGUF" + U32(3) + U64(0) + U64(count)),
              absl::StrCat(count,
                           " keys, which do not fit the file's 24 bytes: the file is cut short or its header "
                           "wrong"));
    EXPECT_EQ(Refusal("GGUF" + U32(3) + U64(count) + U64(0)),
              absl::StrCat(count,
                           " tensors, which do not fit the file's 24 bytes: the file is cut short or its header "
                           "wrong"));
  }
}

TEST(GgufRefusals, Keys) {
  const auto refused = [](const std::string& pair) { return Refusal(File({pair}, {}, 0)); };
  EXPECT_EQ(Refusal(File({Pair("a", 4, U32(1)), Pair("a", 4, U32(1))}, {}, 0)), "key \"a\" is there twice");
  EXPECT_EQ(refused(Pair("a", 13, U64(0))), "key \"a\" has type 13, expected one from 0 to 12");
  EXPECT_EQ(refused(Pair("a", 9, U32(13) + U64(1) + U64(0))),
            "key \"a\" has type 13 for its elements, expected one from 0 to 12");
  EXPECT_EQ(refused(Pair("a", 9, U32(9) + U64(1) + U32(0) + U64(0))),
            "key \"a\" is an array of arrays, which is not read");
  EXPECT_EQ(refused(Pair("a", 7, "\2")), "key \"a\": a bool is 2, expected 0 or 1");
  EXPECT_EQ(refused(Pair("a", 9, U32(7) + U64(3) + std::string("\1\0\xff", 3))),
            "key \"a\": a bool is 255, expected 0 or 1");
  // Lengths beyond the file, up to where 64 bits overflow.
  for (const uint64_t length : {uint64_t{13}, kHuge, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    EXPECT_THAT(refused(U64(length) + "abcd" + U64(0)), HasSubstr("bytes end inside the name of key 0 of 1"));
    EXPECT_THAT(refused(Pair("a", 8, U64(length) + "abcd")), HasSubstr("bytes end inside key \"a\", string 0"));
    EXPECT_THAT(refused(Pair("a", 9, U32(8) + U64(2) + Text("") + U64(length) + "abcd")),
                HasSubstr("bytes end inside key \"a\", string 1"));
    for (const uint32_t type : {0u, 3u, 4u, 7u, 8u, 12u}) {
      EXPECT_THAT(refused(Pair("a", 9, U32(type) + U64(length) + "abcd")),
                  HasSubstr(absl::StrCat("bytes end inside key \"a\" (", length, " elements)")));
    }
  }
  EXPECT_TRUE(OpenBytes(File({Pair("a", 9, U32(8) + U64(0))}, {}, 0)).ok());
}

TEST(GgufRefusals, Alignment) {
  const auto refused = [](uint32_t type, const std::string& value) {
    return Refusal(File({Pair("general.alignment", type, value)}, {}, 0));
  };
  const std::string key = "key \"general.alignment\": ";
  EXPECT_EQ(refused(4, U32(0)), key + "is 0, expected a power of two");
  EXPECT_EQ(refused(4, U32(48)), key + "is 48, expected a power of two");
  EXPECT_EQ(refused(10, U64(32)), key + "has type u64, expected u32");
  EXPECT_EQ(refused(9, U32(4) + U64(1) + U32(32)), key + "has type array of 1 u32, expected u32");
  EXPECT_TRUE(OpenBytes(File({Pair("general.alignment", 4, U32(1u << 31))}, {}, 0)).ok());
  EXPECT_TRUE(OpenBytes(File({Pair("general.alignment", 4, U32(8))}, {Tensor("x", {3}, kF32, 0)}, 16, 8)).ok());
}

TEST(GgufRefusals, Tensors) {
  const auto refused = [](const std::vector<uint64_t>& extents, uint32_t type, uint64_t offset = 0) {
    return Refusal(File({}, {Tensor("x", extents, type, offset)}, 64));
  };
  EXPECT_EQ(Refusal(File({}, {Tensor("x", {8}, kF32, 0), Tensor("x", {8}, kF32, 32)}, 64)),
            "tensor \"x\" is there twice");
  EXPECT_EQ(refused({1, 1, 1, 1, 1}, kF32), "tensor \"x\" has 5 extents, expected at most 4");
  EXPECT_THAT(refused({8}, 23), HasSubstr("tensor \"x\" has type IQ4_XS, expected one of F32, F16, BF16, Q8_0, "));
  EXPECT_THAT(refused({8}, 1000), HasSubstr("tensor \"x\" has type 1000, expected one of"));
  EXPECT_EQ(refused({33, 2}, kQ4_0),
            "tensor \"x\" has rows of 33 elements, expected a multiple of 32, the block of Q4_0");
  EXPECT_EQ(refused({}, kQ4_0), "tensor \"x\" has rows of 1 elements, expected a multiple of 32, the block of Q4_0");
  EXPECT_EQ(refused({128}, 14), "tensor \"x\" has rows of 128 elements, expected a multiple of 256, the block of Q6_K");
  EXPECT_EQ(refused({kHuge}, kF32),
            "tensor \"x\" has an extent of 9223372036854775808, which is too large for 64-bit sizes");
  EXPECT_EQ(refused({kHuge >> 1, 2}, kF32),
            "tensor \"x\": shape [2, 4611686018427387904] is too large for 64-bit sizes");
  EXPECT_EQ(refused({uint64_t{1} << 40, 0, uint64_t{1} << 40}, kF32),
            "tensor \"x\": shape [1099511627776, 0, 1099511627776] is too large for 64-bit sizes");
  EXPECT_EQ(refused({uint64_t{1} << 40}, kF32),
            "tensor \"x\": 4398046511104 bytes for F32 [1099511627776] at byte 0 lie beyond the file's 64 bytes of "
            "data: the file is cut short or its header wrong");
}

TEST(GgufRefusals, Places) {
  const auto refused = [](const std::vector<std::string>& tensors, size_t data) {
    return Refusal(File({}, tensors, data));
  };
  const std::string x = Tensor("x", {9}, kF32, 0);  // 36 bytes
  EXPECT_EQ(refused({Tensor("x", {8}, kF32, 32)}, 64),
            "tensor \"x\" leaves a gap after the header: it begins at byte 32 of the data, expected 0 (alignment 32)");
  EXPECT_EQ(refused({x, Tensor("y", {1}, kF32, 32)}, 64),
            "tensor \"y\" overlaps tensor \"x\": it begins at byte 32 of the data, expected 64 (alignment 32)");
  EXPECT_EQ(
      refused({x, Tensor("y", {1}, kF32, 96)}, 128),
      "tensor \"y\" leaves a gap after tensor \"x\": it begins at byte 96 of the data, expected 64 (alignment 32)");
  EXPECT_EQ(refused({x, Tensor("y", {1}, kF32, 0)}, 64),
            "tensor \"x\" overlaps tensor \"y\": it begins at byte 0 of the data, expected 32 (alignment 32)");
  for (const uint64_t offset : {uint64_t{65}, kHuge, ~uint64_t{0}, ~uint64_t{0} - 31}) {
    EXPECT_THAT(refused({x, Tensor("y", {1}, kF32, offset)}, 128), HasSubstr("tensor \"y\" leaves a gap after"));
  }
  EXPECT_THAT(refused({x, Tensor("y", {1}, kF32, 64)}, 67),
              HasSubstr("tensor \"y\": 4 bytes for F32 [1] at byte 64 lie beyond the file's 67 bytes"));
  EXPECT_EQ(refused({x}, 65),
            "1 bytes at the end of the file belong to no tensor: the data has 65 bytes, expected 36 (alignment 32)");
  // In any order, with or without padding at the end; tensors without elements take no room.
  const std::string y = Tensor("y", {2}, kF32, 64), none = Tensor("none", {4, 0}, kF32, 64);
  for (const size_t data : {72, 90, 96}) EXPECT_TRUE(OpenBytes(File({}, {y, none, x}, data)).ok()) << data;
}

TEST(GgufRefusals, EveryTruncation) {
  for (const char* name : {"types", "metadata", "vocabulary"}) {
    const std::string whole = *ReadFile(absl::StrCat("testing/data/gguf/", name, ".gguf"));
    ASSERT_TRUE(OpenBytes(whole).ok());
    size_t refused = 0;
    for (size_t size = 0; size < whole.size(); ++size) {
      const absl::StatusOr<std::unique_ptr<GgufFile>> file = OpenBytes(whole.substr(0, size));
      refused += !file.ok();
      // The last padding need not be there.
      ASSERT_TRUE(!file.ok() || size + 64 >= whole.size()) << name << " of " << size << " bytes";
    }
    EXPECT_GE(refused + 64, whole.size());
  }
}

// As many pairs and tensors as a file has room for take a small multiple of it.
TEST(GgufRefusals, MemoryIsBoundedByTheFile) {
  std::vector<std::string> pairs, tensors;
  for (int i = 0; i < 2000; ++i) {
    pairs.push_back(Pair(absl::StrCat(i), 0, "x"));
    tensors.push_back(Tensor(absl::StrCat(i), {0, 1, 1, 1}, kF32, 0));
  }
  const std::string bytes = File(pairs, tensors, 0);
  const MemoryFile file = InMemory(bytes);
  absl::Status status;
  EXPECT_LE(AllocationPeak([&] { status = GgufFile::Open(file.path()).status(); }), 20 * bytes.size());
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace kvm
