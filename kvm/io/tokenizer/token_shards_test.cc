#include "kvm/io/tokenizer/token_shards.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/mapped_file.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

std::string Path(const std::string& name) { return testing::TempDir() + "/" + name; }

TEST(WriteTokenShard, WritesTheseBytes) {
  const std::string path = Path("shard.bin");
  ASSERT_TRUE(WriteTokenShard(path, {0, 1, 256, 50256, 65535}).ok());
  std::string expected(1024, '\0');
  expected.replace(0, 12, std::string("\x88\xd8\x34\x01\x01\x00\x00\x00\x05\x00\x00\x00", 12));
  expected += std::string("\x00\x00\x01\x00\x00\x01\x50\xc4\xff\xff", 10);
  const absl::StatusOr<std::string> written = ReadFile(path);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(*written, expected);
}

TEST(WriteTokenShard, WritesAHeaderAloneForNoTokens) {
  const std::string path = Path("empty.bin");
  ASSERT_TRUE(WriteTokenShard(path, {}).ok());
  std::string expected(1024, '\0');
  expected.replace(0, 5, std::string("\x88\xd8\x34\x01\x01", 5));
  EXPECT_EQ(*ReadFile(path), expected);
}

TEST(WriteTokenShard, WritesLongShardsInOrder) {
  const std::string path = Path("long.bin");
  std::vector<int32_t> tokens(600001);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 40503 & 0xffff);
  ASSERT_TRUE(WriteTokenShard(path, tokens).ok());
  const std::string bytes = *ReadFile(path);
  ASSERT_EQ(bytes.size(), 1024 + 2 * tokens.size());
  EXPECT_EQ(bytes.substr(8, 4), std::string("\xc1\x27\x09\x00", 4));
  size_t differing = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int low = static_cast<unsigned char>(bytes[1024 + 2 * i]);
    const int high = static_cast<unsigned char>(bytes[1024 + 2 * i + 1]);
    differing += low + 256 * high != tokens[i];
  }
  EXPECT_EQ(differing, 0u);
}

TEST(WriteTokenShard, RefusesIdsThatDoNotFitAndWritesNothing) {
  const std::string path = Path("refused.bin");
  for (int32_t id : {-1, 65536, 1 << 30}) {
    const absl::Status status = WriteTokenShard(path, {1, 2, id});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(path + ": token 2 is " + std::to_string(id)));
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(WriteTokenShard, RefusesMoreTokensThanTheHeaderCanCount) {
  const int32_t token = 0;
  // The length alone is looked at.
  const absl::Status status = WriteTokenShard(Path("huge.bin"), absl::MakeConstSpan(&token, size_t{1} << 31));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2147483648"));
}

TEST(WriteTokenShard, NamesAFolderThatDoesNotExist) {
  const absl::Status status = WriteTokenShard(Path("absent/shard.bin"), {1});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("absent/shard.bin"));
}

}  // namespace
}  // namespace kvm
