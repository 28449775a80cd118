#include "kvm/io/torch/zip_archive.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/crc32.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/torch/zip_writer.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

constexpr char kData[] = "testing/data/rwkv_pth/";

std::string Slurp(const std::string& path) {
  const auto bytes = ReadFile(path);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.ok() ? *bytes : "";
}

absl::StatusOr<std::vector<ZipEntry>> Read(const std::string& bytes) {
  return ReadZipArchive({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "x.zip");
}

std::map<std::string, std::string> Contents(const std::string& bytes) {
  const auto entries = Read(bytes);
  EXPECT_TRUE(entries.ok()) << entries.status();
  std::map<std::string, std::string> contents;
  if (!entries.ok()) return contents;
  for (const ZipEntry& entry : *entries) {
    EXPECT_TRUE(CheckSum(entry, "x.zip").ok());
    contents[std::string(entry.name)] = std::string(entry.data);
  }
  return contents;
}

std::string Written(const std::map<std::string, std::string>& contents, const ZipWriterOptions& options = {}) {
  const std::string path = ::testing::TempDir() + "/written.zip";
  auto zip = ZipWriter::Create(path, options);
  EXPECT_TRUE(zip.ok()) << zip.status();
  for (const auto& [name, data] : contents) EXPECT_TRUE(zip->Add(name, data).ok());
  EXPECT_TRUE(zip->Commit().ok());
  return Slurp(path);
}

// Two entries: local headers at 0 and at kSecond; directory entries at kDirectory and kDirectory + 47; end record.
const std::map<std::string, std::string>& Pair() {
  static const auto& pair = *new std::map<std::string, std::string>{{"a", "alpha"}, {"b", "beta"}};
  return pair;
}
constexpr size_t kSecond = 64 + 5;
constexpr size_t kDirectory = 128 + 4;
constexpr size_t kSecondInDirectory = kDirectory + 47;
constexpr size_t kEnd = kDirectory + 2 * 47;

std::string Patched(size_t at, const std::string& bytes) {
  std::string archive = Written(Pair());
  return archive.replace(at, bytes.size(), bytes);
}

void ExpectRefused(const std::string& bytes, const std::string& message) {
  const auto entries = Read(bytes);
  ASSERT_FALSE(entries.ok()) << message;
  EXPECT_EQ(entries.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(entries.status().message()), ::testing::StartsWith("x.zip: "));
  EXPECT_THAT(std::string(entries.status().message()), HasSubstr(message));
}

TEST(ReadZipArchive, ReadsWhatTorchWrote) {
  const std::map<std::string, std::string> contents = Contents(Slurp(std::string(kData) + "state_dict.pth"));
  EXPECT_EQ(contents.size(), 10u);
  EXPECT_EQ(contents.at("state_dict/byteorder"), "little");
  EXPECT_EQ(contents.at("state_dict/version"), "3\n");
  EXPECT_EQ(contents.at("state_dict/data/1"), std::string("\x00\x00\x20\x41\x00\x00\x30\x41", 8));
}

TEST(ReadZipArchive, ReadsZip64AsPythonWritesIt) {
  const std::map<std::string, std::string> contents = Contents(Slurp(std::string(kData) + "zip64.pth"));
  EXPECT_EQ(contents.size(), 10u);
  EXPECT_EQ(contents.at("parameters/byteorder"), "little");
}

TEST(ReadZipArchive, NamesCompressedEntries) {
  ExpectRefused(Slurp(std::string(kData) + "deflated.pth"),
                "entry \"parameters/data.pkl\": is compressed by method 8 (deflate), expected stored data (method 0)");
}

TEST(ReadZipArchive, RefusesWhatIsNoArchive) {
  ExpectRefused("", "only 0 bytes");
  ExpectRefused(std::string(1000, 'x'), "no end record");
  const std::string whole = Written(Pair());
  ExpectRefused(whole.substr(0, whole.size() - 1), "no end record in its last ");
  ExpectRefused("x" + whole, "does not end where the end record begins");
}

TEST(ReadZipArchive, ReadsAnEmptyArchiveAndComments) {
  EXPECT_TRUE(Contents(Written({})).empty());
  std::string archive = Written(Pair());
  archive[archive.size() - 2] = 5;
  EXPECT_EQ(Contents(archive + "hello"), Pair());
}

TEST(ReadZipArchive, BytesBehindTheEndBelongToNothing) {
  const std::string whole = Written(Pair());
  for (const size_t size : {1, 21, 22, 4096, 0xffff}) {
    EXPECT_EQ(Contents(whole + std::string(size, '\0')), Pair()) << size;
  }
  ExpectRefused(whole + std::string(0x10000, '\0'), "or more than that stands behind its end");
  // A tail that looks like an end record is one, whose directory is then not there.
  ExpectRefused(whole + std::string("PK\x05\x06", 4) + std::string(16, '\x01') + std::string(3, '\0'), "several disks");
  EXPECT_EQ(Contents(whole + std::string("PK\x05\x06", 4)), Pair());  // too short for one
}

TEST(ReadZipArchive, RefusesBrokenDirectories) {
  EXPECT_EQ(Contents(Written(Pair())), Pair());
  ExpectRefused(Patched(kDirectory, "X"), absl::StrCat("no directory entry at byte ", kDirectory));
  ExpectRefused(Patched(kDirectory + 28, "\xff"), "reaches beyond the directory");
  ExpectRefused(Patched(kDirectory + 8, "\x01"), "entry \"a\": is encrypted");
  ExpectRefused(Patched(kDirectory + 24, "\x06"), "entry \"a\": is stored, but takes 5 bytes for 6");
  ExpectRefused(Patched(kDirectory + 34, "\x01"), "entry \"a\": lies on another disk");
  ExpectRefused(Patched(kDirectory + 24, "\xff\xff\xff\xff"), "lacks the zip64 field");
  ExpectRefused(Patched(kDirectory + 42, "\x01"), "no local header at byte 1");
  ExpectRefused(Patched(kDirectory + 45, "\x7f"), "reach beyond the data");
  ExpectRefused(Patched(kSecondInDirectory + 46, "a"), "entry \"a\": is there twice");
  ExpectRefused(Patched(kEnd + 4, "\x01"), "several disks");
  ExpectRefused(Patched(kEnd + 8, "\x03"), "several disks");
  ExpectRefused(Patched(kEnd + 8, std::string("\x03\x00\x03\x00", 4)), "counts 3 entries, the directory has 2");
  ExpectRefused(Patched(kEnd + 12, "\x01"), "does not end where the end record begins");
}

TEST(ReadZipArchive, RefusesLocalHeadersThatDisagree) {
  ExpectRefused(Patched(0, "X"), "no local header at byte 0");
  ExpectRefused(Patched(6, "\x02"), "other flags or another method");
  ExpectRefused(Patched(8, "\x08"), "other flags or another method");
  ExpectRefused(Patched(14, "\x01"), "another size or checksum");
  ExpectRefused(Patched(18, "\x06"), "another size or checksum");
  ExpectRefused(Patched(22, std::string("\x00", 1)), "another size or checksum");
  ExpectRefused(Patched(30, "c"), "its local header names \"c\" instead");
  ExpectRefused(Patched(29, "\x40"), "reach beyond the data");
  ExpectRefused(Patched(33, "\xff"), "broken extra fields");
  // A data descriptor that is announced and missing.
  std::string archive = Patched(6, "\x08");
  archive[kDirectory + 8] = '\x08';
  ExpectRefused(archive, "data descriptor behind its data is missing");
}

TEST(ReadZipArchive, RefusesOverlaps) {
  // The first entry's data as long as to cover the second entry.
  std::string archive = Written({{"a", std::string(64, 'x')}, {"b", "y"}});
  const size_t directory = 192 + 1;
  const std::string size("\x41\x00\x00\x00\x41\x00\x00\x00", 8);
  archive.replace(18, 8, size);
  archive.replace(directory + 20, 8, size);
  ExpectRefused(archive, "entry \"b\": overlaps entry \"a\"");
}

TEST(CheckSum, SeesDamage) {
  const std::string archive = Patched(kSecond + 64 - 5 + 1, "E");
  const auto entries = Read(archive);
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_TRUE(CheckSum((*entries)[0], "x.zip").ok());
  const absl::Status status = CheckSum((*entries)[1], "x.zip");
  EXPECT_THAT(std::string(status.message()), HasSubstr("x.zip: entry \"b\": its data have checksum "));
}

TEST(ZipWriter, AlignsDataTo64) {
  std::map<std::string, std::string> contents;
  for (int i = 0; i < 100; ++i) contents[std::string(1 + i, 'n')] = std::string(3 * i, 'd');
  const std::string archive = Written(contents);
  const auto entries = Read(archive);
  ASSERT_TRUE(entries.ok()) << entries.status();
  for (const ZipEntry& entry : *entries) EXPECT_EQ((entry.data.data() - archive.data()) % 64, 0) << entry.name;
  EXPECT_EQ(Contents(archive), contents);
}

TEST(ZipWriter, WritesZip64WhereNumbersAreLarge) {
  const std::map<std::string, std::string> contents = {
      {"a", "small"}, {"b", std::string(300, 'x')}, {"c", "far"}, {"d", std::string(301, 'y')}};
  for (const uint64_t from : {0, 1, 200, 300, 301, 400, 1000}) {
    ZipWriterOptions options;
    options.zip64_from = from;
    EXPECT_EQ(Contents(Written(contents, options)), contents) << from;
  }
  EXPECT_THAT(Written(contents), ::testing::Not(HasSubstr("PK\x06\x06")));
  ZipWriterOptions options;
  options.zip64_from = 301;
  const std::string archive = Written(contents, options);
  EXPECT_THAT(archive, HasSubstr("PK\x06\x06"));
  // "b" has no zip64 field, "d" has one with both of its sizes and its offset.
  EXPECT_THAT(archive, HasSubstr(std::string("d\x01\x00\x18\x00\x2d\x01\x00\x00\x00\x00\x00\x00\x2d\x01", 15)));
}

TEST(ZipWriter, WritesMoreEntriesThan16BitsCount) {
  std::map<std::string, std::string> contents;
  for (int i = 0; i < 65536; ++i) contents[absl::StrCat(i)] = "";
  EXPECT_EQ(Contents(Written(contents)).size(), 65536u);
}

TEST(ZipWriter, WithoutCommitNothingAppears) {
  const std::string path = ::testing::TempDir() + "/never.zip";
  {
    auto zip = ZipWriter::Create(path);
    ASSERT_TRUE(zip.ok());
    ASSERT_TRUE(zip->Add("a", "b").ok());
  }
  EXPECT_EQ(ReadFile(path).status().code(), absl::StatusCode::kNotFound);
}

TEST(ReadZipArchive, SurvivesEveryTruncationAndFlip) {
  ZipWriterOptions zip64;
  zip64.zip64_from = 3;
  const std::string archives[] = {Written(Pair()), Written(Pair(), zip64), Slurp(std::string(kData) + "zip64.pth"),
                                  Slurp(std::string(kData) + "state_dict.pth")};
  for (const std::string& archive : archives) {
    for (size_t size = 0; size < archive.size(); ++size) {
      // A copy of exactly this size, so that a sanitizer sees reads behind it.
      const std::vector<uint8_t> cut(archive.begin(), archive.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_FALSE(ReadZipArchive(cut, "x.zip").ok()) << size;
    }
    std::vector<uint8_t> changed(archive.begin(), archive.end());
    for (uint8_t& byte : changed) {
      for (const int mask : {0x01, 0x80, 0xff}) {
        byte = static_cast<uint8_t>(byte ^ mask);
        const auto entries = ReadZipArchive(changed, "x.zip");
        if (entries.ok()) {
          for (const ZipEntry& entry : *entries) Crc32(entry.data);
        }
        byte = static_cast<uint8_t>(byte ^ mask);
      }
    }
  }
}

}  // namespace
}  // namespace kvm
