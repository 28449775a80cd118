#include "tools/demo/demo_command.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/io/tokenizer/byte_level_bpe.h"
#include "kvm/model/stack/stack_spec.h"
#include "nlohmann/json.hpp"
#include "testing/command_testing.h"
#include "tools/demo/demo_data.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

constexpr char kSmallStack[] = R"(
    width: 32 tied_head: true
    mixers { name: "rwkv7" rwkv7 { num_heads: 1 } }
    mixers {
      name: "kvm"
      kvm {
        projections { num_heads: 1 rotary_dim: 8 }
        budget { growth: POWER_LAW factor: 16 min_rows: 256 max_chunks: 10000 }
      }
    }
    layers: ["rwkv7", "kvm"])";

class DemoCommandTest : public CommandFixture {};

TEST_F(DemoCommandTest, MeasuresAndDraws) {
  WriteAll(Path("stack.textproto"), kSmallStack);
  const std::vector<std::string> args = {"demo", "--spec=" + Path("stack.textproto"), "--tokens=800", "--threads=1",
                                         "--out=" + Path("svg")};
  ASSERT_EQ(Run(args), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("the weights are random"));
  std::vector<std::string> json_args = args;
  json_args.push_back("--json");
  ASSERT_EQ(Run(json_args), 0) << err_;
  const nlohmann::json points = nlohmann::json::parse(out_);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0]["context"], 512);
  EXPECT_EQ(points[0]["rows"], 256);
  // 2 layers x 2 x 32 channels x 4 bytes x 512 tokens.
  EXPECT_EQ(points[0]["full_cache_bytes"], 2 * 2 * 32 * 4 * 512);
  EXPECT_EQ(points[1]["context"], 800);
  // The second chunk has left the window: floor(16 * sqrt(768)).
  EXPECT_EQ(points[1]["rows"], 443);
  EXPECT_GT(points[1]["state_bytes"], points[0]["state_bytes"]);
  EXPECT_GT(points[1]["decode_seconds_per_token"], 0);
  EXPECT_THAT(ReadAll(Path("svg")), HasSubstr("</svg>"));
}

TEST_F(DemoCommandTest, BringsItsOwnStackTextAndTokenizer) {
  const absl::StatusOr<StackSpec> spec = ParseStackSpec(DemoStack(), "demo");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers_size(), 12);
  EXPECT_EQ(spec->layers(3), "kvm");
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = ParseByteLevelBpe(Gpt2Tokenizer(), "demo");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_GE((*tokenizer)->Encode(DemoText()).value().size(), 16384u);
}

TEST_F(DemoCommandTest, RefusesBeforeTheWorkBegins) {
  WriteAll(Path("precious"), "width: 64");
  EXPECT_EQ(Run({"demo", "--out=" + Path("precious")}), 1);
  EXPECT_THAT(err_, HasSubstr("exists already and is no picture (SVG); expected a new file"));
  EXPECT_EQ(ReadAll(Path("precious")), "width: 64");
  EXPECT_EQ(Run({"demo", "--tokens=10"}), 2);
  EXPECT_EQ(Run({"demo", "--tokens=1000000", "--out=" + Path("svg")}), 2);
  EXPECT_THAT(err_, HasSubstr("the demo's text has "));
  EXPECT_EQ(Run({"demo", "--out=absent/folder/demo.svg"}), 1);
  EXPECT_THAT(err_, HasSubstr("absent/folder"));
  WriteAll(Path("stack.textproto"), R"(vocab_size: 100 mixers { name: "r" rwkv7 { num_heads: 12 } } layers: "r")");
  EXPECT_EQ(Run({"demo", "--spec=" + Path("stack.textproto"), "--out=" + Path("svg")}), 1);
  EXPECT_THAT(err_, HasSubstr("vocab_size is 100; expected at least 50257"));
  EXPECT_EQ(Run({"demo", "--device=cuda", "--out=" + Path("svg")}), 1);
  EXPECT_EQ(out_, "");
  EXPECT_FALSE(Exists(Path("svg")));
}

}  // namespace
}  // namespace kvm
