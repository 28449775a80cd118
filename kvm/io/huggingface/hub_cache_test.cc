#include "kvm/io/huggingface/hub_cache.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class HubCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    model_ = root_ / "models--someone--kvm-120m";
    fs::create_directories(model_ / "refs");
    fs::create_directories(model_ / "snapshots");
  }
  void TearDown() override { fs::remove_all(root_); }

  void AddSnapshot(const std::string& name) { fs::create_directories(model_ / "snapshots" / name); }
  void SetMain(const std::string& text) { std::ofstream(model_ / "refs" / "main") << text; }

  std::string Resolved() const { return ResolveHubFolder(model_.string()).value_or("none"); }
  std::string Refusal(absl::StatusCode code) const {
    const absl::StatusOr<std::string> resolved = ResolveHubFolder(model_.string());
    EXPECT_EQ(resolved.status().code(), code);
    return std::string(resolved.status().message());
  }

  fs::path root_, model_;
};

TEST_F(HubCacheTest, OtherPathsStayAsTheyAre) {
  EXPECT_EQ(ResolveHubFolder(root_.string()).value_or(""), root_.string());
  EXPECT_EQ(ResolveHubFolder("absent").value_or(""), "absent");
  std::ofstream(model_ / "config.json") << "{}";
  EXPECT_EQ(Resolved(), model_.string());
}

TEST_F(HubCacheTest, TakesTheOnlySnapshotOrThatOfMain) {
  AddSnapshot("abc");
  EXPECT_EQ(Resolved(), (model_ / "snapshots" / "abc").string());
  AddSnapshot("def");
  SetMain("def\n");
  EXPECT_EQ(Resolved(), (model_ / "snapshots" / "def").string());
}

TEST_F(HubCacheTest, RefusesToGuess) {
  EXPECT_THAT(Refusal(absl::StatusCode::kNotFound), HasSubstr("no snapshot here"));
  AddSnapshot("def");
  AddSnapshot("abc");
  EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument), HasSubstr("name one: abc, def"));
  for (const char* main : {"ghi", "", "..", "../../x", "/"}) {
    SetMain(main);
    EXPECT_THAT(Refusal(absl::StatusCode::kNotFound), HasSubstr("refs/main")) << main;
  }
}

}  // namespace
}  // namespace kvm
