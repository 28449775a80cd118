#include "tools/report/inspect_snapshot.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "testing/command_testing.h"

namespace kvm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class InspectSnapshotTest : public CommandFixture {
 protected:
  // Writes a snapshot of 3 + 37 tokens; layers 1 and 3 of the four are KVM, the others RWKV-7, and chunks are of 8.
  void Write(const std::string& provenance) {
    ASSERT_EQ(Run({"generate", "--model=" + Golden("kvm_rwkv7_hybrid"), "--threads=1", "--prompt-ids=1,2,3",
                   "--max-tokens=37", "--temperature=0.5", "--seed=4", "--save-session=" + file_, provenance}),
              0)
        << err_;
  }

  const std::string file_ = Path("talk.kvmstate");
};

TEST_F(InspectSnapshotTest, ShowsLayersModelAndSampler) {
  Write("--noprovenance");
  ASSERT_EQ(Run({"inspect", file_}), 0) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr(file_ + ": snapshot of a session\n40 tokens, state "),
                          HasSubstr("weights as-is, state F32\n"), HasSubstr("logits of the next token: yes"),
                          HasSubstr("sampler: temperature 0.5, top-k 0, "), HasSubstr("seed 4; 37 draws"),
                          HasSubstr("RWKV-7"), Not(HasSubstr("layer.1.mixer"))));
  EXPECT_THAT(out_, ::testing::ContainsRegex("\n1 +[0-9]+ +[0-9.]+ KiB +0 to 23 +24 to 39 +KVM\n"));
}

TEST_F(InspectSnapshotTest, JsonHasTheSame) {
  Write("--provenance");
  ASSERT_EQ(Run({"inspect", "--json", "--tensors", "--check", file_}), 0) << err_;
  const nlohmann::json json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["kind"], "snapshot");
  EXPECT_EQ(json["position"], 40);
  EXPECT_EQ(json["sampler"]["draws"], 37);
  EXPECT_EQ(json["model"]["provenance"], true);
  EXPECT_EQ(json["checked"], true);
  ASSERT_EQ(json["layers"].size(), 4u);
  EXPECT_EQ(json["layers"][0]["mixer"], "RWKV-7");
  EXPECT_EQ(json["layers"][1]["in_rows"], (std::vector<int>{0, 24}));
  EXPECT_EQ(json["layers"][1]["in_window"], (std::vector<int>{24, 40}));
  EXPECT_EQ(json["sections"][0]["name"], "tokens");
  EXPECT_EQ(json["sections"][0]["shape"], (std::vector<int>{40}));
}

TEST_F(InspectSnapshotTest, CheckReadsEveryByte) {
  Write("--noprovenance");
  ASSERT_EQ(Run({"inspect", "--check", file_}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("check: every byte read, all checksums are right"));
  std::string bytes = ReadAll(file_);
  bytes.back() ^= 1;
  WriteAll(file_, bytes);
  EXPECT_EQ(Run({"inspect", file_}), 0) << err_;
  EXPECT_EQ(Run({"inspect", "--check", file_}), 1);
  EXPECT_THAT(err_, AllOf(HasSubstr(file_), HasSubstr("section")));
  WriteAll(file_, bytes.substr(0, bytes.size() - 1));
  EXPECT_EQ(Run({"inspect", file_}), 1);
}

TEST_F(InspectSnapshotTest, DrawsAndListsMaps) {
  Write("--provenance");
  const std::string svg = Path("map.svg"), csv = Path("map.csv");
  ASSERT_EQ(Run({"inspect", file_, "--map=" + svg}), 0) << err_;
  EXPECT_THAT(ReadAll(svg), AllOf(HasSubstr("layer 1, head 0"), HasSubstr("talk.kvmstate: 24 of 40 tokens")));
  ASSERT_EQ(Run({"inspect", file_, "--map=" + csv, "--layer=3", "--head=1"}), 0) << err_;
  const std::string table = ReadAll(csv);
  EXPECT_THAT(table, HasSubstr("position,row\n0,0\n1,1\n"));  // tokens of the first chunk are rows of their own
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 25);
  EXPECT_EQ(Run({"inspect", file_, "--map=" + svg, "--layer=0"}), 1);
  EXPECT_THAT(err_, HasSubstr("layer 0 has no rows; expected one of 1, 3"));
  EXPECT_EQ(Run({"inspect", file_, "--map=" + Path("map.png")}), 1);
  EXPECT_THAT(err_, HasSubstr("expected a name that ends in .svg or .csv"));
  Write("--noprovenance");
  EXPECT_EQ(Run({"inspect", file_, "--map=" + svg}), 1);
  EXPECT_THAT(err_, HasSubstr("made with --provenance"));
  EXPECT_EQ(Run({"inspect", Golden("kvm_sqrt"), "--map=" + svg}), 1);
  EXPECT_THAT(err_, HasSubstr("--map is for snapshots"));
}

}  // namespace
}  // namespace kvm
