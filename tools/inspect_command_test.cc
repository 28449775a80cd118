#include "tools/inspect_command.h"

#include <cmath>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "testing/command_testing.h"

namespace kvm {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class InspectCommandTest : public CommandFixture {};

TEST_F(InspectCommandTest, ShowsAModelFolder) {
  ASSERT_EQ(Run({"inspect", Golden("kvm_sqrt")}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("29,704 parameters: 2 layers, width 32, MLP 96, vocabulary 64\n"));
  EXPECT_THAT(out_, HasSubstr("KVM, 2 heads of 16, rotary 8, window 2 chunks of 8, 2*context^0.5 rows; layers 0-1"));
  EXPECT_THAT(out_, HasSubstr("config keys without effect: "));
  EXPECT_THAT(out_, ContainsRegex("memory: weights .* fits in the .* available of this machine's"));
}

TEST_F(InspectCommandTest, ListsTensorsOfAFile) {
  WriteTensor(Path("a.safetensors"), "ids", Tensor::FromInts({2, 3}, {1, 2, 3, 4, 5, 6}));
  ASSERT_EQ(Run({"inspect", "--tensors", Path("a.safetensors")}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("1 tensor, 48 B: I64 48 B\n"));
  EXPECT_THAT(out_, HasSubstr("ids       I64  [2, 3]     48\n"));
}

TEST_F(InspectCommandTest, JsonOfAFolder) {
  ASSERT_EQ(Run({"inspect", "--json", "--tensors", "--check", Golden("kvm_sqrt")}), 0) << err_;
  const nlohmann::json json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["stack"]["parameters"], 29704);
  EXPECT_EQ(json["weights"]["list"].size(), json["weights"]["tensors"]);
  EXPECT_EQ(json["memory"]["fits"], true);
  EXPECT_TRUE(json["broken"].empty());
}

TEST_F(InspectCommandTest, CheckCountsBrokenNumbers) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  WriteTensor(Path("a.safetensors"), "w", Tensor::FromFloats({5}, {1, kNan, kInf, -kInf, 2}));
  EXPECT_EQ(Run({"inspect", Path("a.safetensors")}), 0);
  EXPECT_EQ(Run({"inspect", "--check", Path("a.safetensors")}), 1);
  EXPECT_THAT(out_, HasSubstr("w                1         2   5\n"));
  EXPECT_THAT(err_, HasSubstr("1 tensor has NaN or infinite numbers (w: 1 NaN, 2 infinite)"));
  EXPECT_EQ(Run({"inspect", "--check", "--json", Path("a.safetensors")}), 1);
  EXPECT_EQ(nlohmann::json::parse(out_)["broken"][0]["infinite"], 2);
}

TEST_F(InspectCommandTest, CheckOfSoundFilesSaysSo) {
  ASSERT_EQ(Run({"inspect", "--check", Golden("kvm_sqrt")}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("check: every byte read, all numbers are finite\n"));
}

TEST_F(InspectCommandTest, ShowsPyTorchCheckpoints) {
  const std::string folder = "testing/data/rwkv_pth/";
  ASSERT_EQ(Run({"inspect", "--check", "--tensors", folder + "x070_bf16.pth"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("x070_bf16.pth: RWKV-7 checkpoint\n"));
  EXPECT_THAT(out_, HasSubstr("rwkv7: RWKV-7, 2 heads of 16; layers 0-1\n"));
  EXPECT_THAT(out_, HasSubstr("transformer.h.1.attn.w1.weight "));
  EXPECT_THAT(out_, HasSubstr("check: every byte read, all numbers are finite\n"));
  // Of another model: the tensors alone.
  ASSERT_EQ(Run({"inspect", "--tensors", folder + "state_dict.pth"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("state_dict.pth: PyTorch checkpoint\n4 tensors, 48 B: F32 48 B\n"));
  EXPECT_THAT(out_, HasSubstr("0.weight    F32  [2, 3]     24\n"));
  EXPECT_EQ(Run({"inspect", folder + "malicious.pth"}), 1);
  EXPECT_THAT(err_, HasSubstr("the pickle asks for \"posix.system\""));
  EXPECT_EQ(Run({"inspect", folder + "legacy.pth"}), 1);
  EXPECT_THAT(err_, HasSubstr("PyTorch checkpoints were before version 1.6"));
}

TEST_F(InspectCommandTest, CheckSeesDamagedPyTorchCheckpoints) {
  std::string bytes = ReadAll("testing/data/rwkv_pth/state_dict.pth");
  bytes[0x400] = 1;  // in data/0
  WriteAll(Path("damaged.pth"), bytes);
  EXPECT_EQ(Run({"inspect", Path("damaged.pth")}), 0) << err_;
  EXPECT_EQ(Run({"inspect", "--check", Path("damaged.pth")}), 1);
  EXPECT_THAT(err_, HasSubstr("entry \"state_dict/data/0\": its data have checksum"));
}

TEST_F(InspectCommandTest, ShowsAStack) {
  WriteAll(Path("a.textproto"), R"(mixers { name: "r" rwkv7 { num_heads: 12 } } layers: ["r", "r"])");
  ASSERT_EQ(Run({"inspect", Path("a.textproto")}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("r: RWKV-7, 12 heads of 64; layers 0-1\n"));
}

TEST_F(InspectCommandTest, ShowsTheGrowthOfEachMixer) {
  ASSERT_EQ(Run({"inspect", "--state=int8", Golden("kvm_rwkv7_hybrid")}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("bytes of one sequence, state int8:\n"));
  EXPECT_THAT(out_, HasSubstr("bytes of all its layers\n  main x "));
  ASSERT_EQ(Run({"inspect", "--json", Golden("kvm_rwkv7_hybrid")}), 0) << err_;
  const nlohmann::json stack = nlohmann::json::parse(out_)["stack"];
  int64_t layers = 0;
  for (const nlohmann::json& mixer : stack["state_growth"]["mixers"]) layers += mixer["layers"].get<int64_t>();
  EXPECT_EQ(layers, stack["layers"].size());
}

TEST_F(InspectCommandTest, MarksWhatIsAtMost) {
  WriteAll(Path("a.textproto"), R"(
      width: 32 layers: "k"
      mixers {
        name: "k" kvm { projections { num_heads: 2 rotary_dim: 8 } chunk_len: 8 budget { append_below: 4 } }
      })");
  ASSERT_EQ(Run({"inspect", Path("a.textproto")}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("<=8 "));
  EXPECT_THAT(out_, HasSubstr("<=: at most"));
}

TEST_F(InspectCommandTest, RefusesWhatIsNone) {
  EXPECT_EQ(Run({"inspect"}), 2);
  EXPECT_EQ(Run({"inspect", "a", "b"}), 2);
  EXPECT_EQ(Run({"inspect", "absent"}), 1);
  EXPECT_EQ(err_, "kvm: absent: no such file or folder\n");
  EXPECT_EQ(Run({"inspect", Gpt2()}), 1);
  EXPECT_THAT(err_, HasSubstr("; kvm inspect takes a snapshot and a stack's .textproto as well\n"));
  EXPECT_THAT(err_, HasSubstr("it looks like JSON"));
  EXPECT_EQ(Run({"inspect", "testing/data"}), 1);
  EXPECT_THAT(err_, HasSubstr("testing/data"));
  WriteAll(Path("a.safetensors"), "not safetensors");
  EXPECT_EQ(Run({"inspect", Path("a.safetensors")}), 1);
  WriteAll(Path("a.textproto"), "layers: 3");
  EXPECT_EQ(Run({"inspect", Path("a.textproto")}), 1);
  EXPECT_THAT(err_, HasSubstr("a.textproto"));
}

TEST_F(InspectCommandTest, NamesCannotSpeakToTheTerminal) {
  const std::string path = Path("odd.safetensors");
  WriteTensor(path, "\x1b[31mred" + std::string(1000, 'x'), Tensor::FromFloats({1}, {NAN}));
  EXPECT_EQ(Run({"inspect", path, "--tensors", "--check"}), 1);
  for (const std::string& text : {out_, err_}) {
    EXPECT_THAT(text, HasSubstr("\\x1b[31mred"));
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
  }
  EXPECT_LT(out_.size(), 1500u);
}

}  // namespace
}  // namespace kvm
