#include "tools/report/row_map.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/state/host_layer_state.h"
#include "kvm/state/snapshot/session.h"
#include "kvm/state/snapshot/snapshot.h"
#include "kvm/state/snapshot/snapshot_testing.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Two heads that record where ten of twelve tokens went.
class MappedState : public MixerState {
 public:
  explicit MappedState(std::vector<int32_t> rows) : rows_(std::move(rows)) {}
  std::unique_ptr<MixerState> Clone() const override { return std::make_unique<MappedState>(rows_); }
  int64_t ByteSize() const override { return 8 * static_cast<int64_t>(rows_.size()); }
  void Save(const StateWriter& out) const override {
    for (const char* head : {"head.0", "head.1"}) {
      out.Part(head).Tensor("row_of_token", DType::kI32, {static_cast<int64_t>(rows_.size())}, rows_.data());
    }
  }
  absl::Status Restore(const StateReader&, int64_t) override { return absl::UnimplementedError("only written"); }
  std::vector<NamedTensor> Export() const override { return {}; }
  StateCoverage Coverage() const override { return {{0, 10}, {8, 12}}; }

 private:
  std::vector<int32_t> rows_;
};

class RowMapTest : public ::testing::Test {
 protected:
  // A snapshot whose second layer has these rows.
  void Write(const std::vector<int32_t>& rows) {
    std::vector<HostLayerState> layers(2);
    layers[0].mixer = CopyOnWrite<MixerState>(std::make_unique<RowsState>(1, 0));
    layers[1].mixer = CopyOnWrite<MixerState>(std::make_unique<MappedState>(rows));
    Session session;
    session.state = NewHostSequence(1, std::move(layers));
    SequenceAccess::EndPass(session.state, 12);
    session.tokens.resize(12);
    ASSERT_TRUE(WriteSnapshot(path_, session, TestIdentity()).ok());
  }

  absl::StatusOr<RowMap> Read(std::optional<int64_t> layer = std::nullopt, int64_t head = 0) const {
    return ReadRowMap(path_, ReadSnapshotHeader(path_).value(), layer, head);
  }

  std::string path_ = ::testing::TempDir() + "/row_map.kvmstate";
};

TEST_F(RowMapTest, IsOfTheFirstLayerThatHasOne) {
  Write({0, 1, 2, 3, 1, 1, 4, 3, 4, 0});
  const absl::StatusOr<RowMap> map = Read();
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->layer, 1);
  EXPECT_EQ(map->position, 12);
  EXPECT_EQ(map->window_begin, 8);
  EXPECT_EQ(map->num_rows, 5);
  EXPECT_THAT(map->row_of_token, ElementsAre(0, 1, 2, 3, 1, 1, 4, 3, 4, 0));
  EXPECT_TRUE(Read(1, 1).ok());
  EXPECT_EQ(RowMapCsv(*map), "position,row\n0,0\n1,1\n2,2\n3,3\n4,1\n5,1\n6,4\n7,3\n8,4\n9,0\n");
}

TEST_F(RowMapTest, WhatIsNotThereIsNamedWithWhatIs) {
  Write({0, 1, 2, 3, 1, 1, 4, 3, 4, 0});
  EXPECT_THAT(std::string(Read(0).status().message()), HasSubstr("layer 0 has no rows; expected one of 1"));
  EXPECT_THAT(std::string(Read(1, 2).status().message()), HasSubstr("no key/value head 2; expected one of 0, 1"));
  ASSERT_TRUE(WriteSnapshot(path_, TestSession(1, 3, 2), TestIdentity()).ok());
  EXPECT_THAT(std::string(Read().status().message()), HasSubstr("made with --provenance"));
}

TEST_F(RowMapTest, RowsThatCannotBeAreRefused) {
  for (const int32_t row : {-1, 10, 1 << 30}) {
    Write({0, 1, 2, 3, 1, row, 4, 3, 4, 0});
    const absl::Status status = Read().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("token 5 is in row ", row, "; expected 0 to 9")));
  }
}

TEST_F(RowMapTest, PictureShowsEveryTokenOfAShortText) {
  Write({0, 1, 2, 3, 1, 1, 4, 3, 4, 0});
  const std::string svg = DrawRowMap(*Read(), "a & b");
  EXPECT_THAT(svg, HasSubstr("a &amp; b: 10 of 12 tokens in 5 rows"));
  EXPECT_THAT(svg, HasSubstr("merged: 5<"));
  EXPECT_THAT(svg, HasSubstr("appended: 5<"));
  EXPECT_THAT(svg, HasSubstr("window: 4<"));
  // The plot is 788 × 390 pixels from (92, 84): a token is 65.67 wide, a row 78 high. Merged ones: token 9 in row 0;
  // 4 and 5 in row 1; 7 in row 3; 8 in row 4.
  EXPECT_THAT(svg, HasSubstr("\"M683.0 435.0h65.7M354.7 357.0h131.3M551.7 201.0h65.7M617.3 123.0h65.7\""));
}

TEST_F(RowMapTest, PicturesOfLongTextsStaySmall) {
  RowMap map;
  map.position = 1000000;
  map.window_begin = 999000;
  map.num_rows = 16000;
  // As scattered as can be.
  for (int64_t t = 0; t < map.window_begin; ++t) {
    map.row_of_token.push_back(static_cast<int32_t>(t < map.num_rows ? t : t * 7919 % 15991));
  }
  const std::string svg = DrawRowMap(map, "long");
  EXPECT_LT(svg.size(), 1000000u);
  EXPECT_GT(svg.size(), 3000u);
}

}  // namespace
}  // namespace kvm
