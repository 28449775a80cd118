#include "tools/logits_command.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "testing/command_testing.h"
#include "testing/reference_model/reference_engine.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

// The reference logits are float32, so both sides carry its rounding noise (about 1e-6 on logits of about 1).
constexpr float kTolerance = 2e-5f;

class LogitsCommandTest : public CommandFixture {
 protected:
  std::string GoldenFile(const std::string& name) { return Golden(name) + "/golden.safetensors"; }

  int RunOn(const std::string& model, const std::string& ids, const std::string& out,
            const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"logits", "--model=" + Golden(model), "--ids=" + ids, "--out=" + out,
                                     "--threads=1"};
    args.insert(args.end(), more.begin(), more.end());
    return Run(args);
  }

  // The error of ids that are not as they should be.
  std::string ErrorFor(const std::string& name, const Tensor& tensor) {
    WriteTensor(Path("ids"), name, tensor);
    EXPECT_EQ(RunOn("kvm_sqrt", Path("ids"), Path("out")), 1);
    EXPECT_FALSE(Exists(Path("out")));
    return err_;
  }

  // Expects a tensor of one file to be near that of another.
  static void ExpectNear(const std::string& path, const std::string& name, const std::string& golden_path,
                         const std::string& golden_name) {
    const std::unique_ptr<SafetensorsFile> file = SafetensorsFile::Open(path).value();
    const std::unique_ptr<SafetensorsFile> golden = SafetensorsFile::Open(golden_path).value();
    const TensorView* actual = file->Find(name);
    const TensorView* expected = golden->Find(golden_name);
    ASSERT_NE(actual, nullptr) << name;
    ASSERT_NE(expected, nullptr) << golden_name;
    ASSERT_EQ(actual->shape, expected->shape) << name;
    ASSERT_EQ(actual->dtype, expected->dtype) << name;
    const std::vector<float> a = ReadFloats(*actual), b = ReadFloats(*expected);
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_NEAR(a[i], b[i], kTolerance * std::max(1.0f, std::abs(b[i]))) << name << " element " << i;
    }
  }
};

TEST_F(LogitsCommandTest, AgreesWithTheReferenceInLogitsHiddenAndState) {
  for (const char* model : {"kvm_sqrt", "kvm_rwkv7_hybrid"}) {
    SCOPED_TRACE(model);
    const std::string golden = GoldenFile(model);
    ASSERT_EQ(RunOn(model, golden, Path("out"), {"--hidden", "--state-out=" + Path("state")}), 0) << err_;
    ExpectNear(Path("out"), "logits", golden, "logits_full");
    ExpectNear(Path("out"), "hidden_after_layer_1", golden, "hidden_after_layer_1");
    const std::unique_ptr<SafetensorsFile> file = SafetensorsFile::Open(golden).value();
    int compared = 0;
    for (const std::string& name : file->Names()) {
      if (name.rfind("cache.", 0) != 0) continue;
      ExpectNear(Path("state"), name, golden, name);
      ++compared;
    }
    EXPECT_GT(compared, 10);
  }
}

TEST_F(LogitsCommandTest, PiecesChangeNoBit) {
  const std::string golden = GoldenFile("kvm_sqrt");
  ASSERT_EQ(RunOn("kvm_sqrt", golden, Path("whole"), {"--state-out=" + Path("whole_state")}), 0) << err_;
  const std::string whole = ReadAll(Path("whole")), whole_state = ReadAll(Path("whole_state"));
  ASSERT_FALSE(whole.empty());
  for (const char* pieces : {"20,1", "1", "7", "8,3,100", "101"}) {
    ASSERT_EQ(
        RunOn("kvm_sqrt", golden, Path("out"), {std::string("--pieces=") + pieces, "--state-out=" + Path("state")}), 0)
        << err_;
    EXPECT_EQ(ReadAll(Path("out")) == whole, true) << pieces;
    EXPECT_EQ(ReadAll(Path("state")) == whole_state, true) << pieces;
  }
  ASSERT_EQ(RunOn("kvm_sqrt", golden, Path("out"), {"--threads=3"}), 0) << err_;
  EXPECT_EQ(ReadAll(Path("out")) == whole, true);
}

TEST_F(LogitsCommandTest, ChunkedRecurrencesAreTheSameUpToRounding) {
  const std::string golden = GoldenFile("rwkv7");
  ASSERT_EQ(RunOn("rwkv7", golden, Path("stepped")), 0) << err_;
  ASSERT_EQ(RunOn("rwkv7", golden, Path("chunked"), {"--chunked-recurrences"}), 0) << err_;
  ExpectNear(Path("chunked"), "logits", golden, "logits_full");
  EXPECT_EQ(ReadAll(Path("chunked")) == ReadAll(Path("stepped")), false);
  // Pieces that are too short for chunks are stepped.
  ASSERT_EQ(RunOn("rwkv7", golden, Path("out"), {"--chunked-recurrences", "--pieces=15"}), 0) << err_;
  EXPECT_EQ(ReadAll(Path("out")) == ReadAll(Path("stepped")), true);
}

TEST_F(LogitsCommandTest, IntegerRowsAreNear) {
  const std::string golden = GoldenFile("kvm_sqrt");
  ASSERT_EQ(RunOn("kvm_sqrt", golden, Path("f32")), 0) << err_;
  ASSERT_EQ(RunOn("kvm_sqrt", golden, Path("int8"), {"--state=int8"}), 0) << err_;
  const std::unique_ptr<SafetensorsFile> f32 = SafetensorsFile::Open(Path("f32")).value();
  const std::unique_ptr<SafetensorsFile> int8 = SafetensorsFile::Open(Path("int8")).value();
  const std::vector<float> a = ReadFloats(*f32->Find("logits")), b = ReadFloats(*int8->Find("logits"));
  ASSERT_EQ(a.size(), b.size());
  EXPECT_NE(a, b);
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 0.1) << i;
}

TEST_F(LogitsCommandTest, NamesIdsThatAreWrong) {
  EXPECT_THAT(ErrorFor("input_ids", Tensor::FromInts({2, 2}, {1, 2, 3, 64})),
              HasSubstr("input_ids[1, 1] is 64; expected 0 to 63, the model's vocabulary"));
  EXPECT_THAT(ErrorFor("input_ids", Tensor::FromInts({1, 2}, {1, -1})), HasSubstr("input_ids[0, 1] is -1"));
  EXPECT_THAT(ErrorFor("input_ids", Tensor::FromFloats({1, 2}, {1, 2})),
              HasSubstr("input_ids is F32 of shape [1, 2]; expected I64 of shape [B, T]"));
  EXPECT_THAT(ErrorFor("input_ids", Tensor::FromInts({2}, {1, 2})), HasSubstr("of shape [2]; expected I64"));
  EXPECT_THAT(ErrorFor("input_ids", Tensor::FromInts({1, 0}, {})), HasSubstr("of shape [1, 0]; expected I64"));
  EXPECT_THAT(ErrorFor("ids", Tensor::FromInts({1, 1}, {1})), HasSubstr("no tensor input_ids"));
}

TEST_F(LogitsCommandTest, AMaskHidesNothing) {
  Tensor ids(DType::kI64, {1, 3}), mask(DType::kI64, {1, 3}), positions(DType::kI64, {1, 3});
  int64_t* const values = static_cast<int64_t*>(mask.bytes());
  std::fill_n(values, 3, 1);
  const std::string path = Path("ids"), out = Path("out");
  const auto run = [&] {
    EXPECT_TRUE(
        WriteSafetensors(
            path, {{"attention_mask", mask.view()}, {"input_ids", ids.view()}, {"position_ids", positions.view()}})
            .ok());
    return Run({"logits", "--model=" + Golden("kvm_sqrt"), "--ids=" + path, "--out=" + out});
  };
  EXPECT_EQ(run(), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("position_ids changes nothing"));
  values[1] = 0;
  EXPECT_EQ(run(), 1);
  EXPECT_THAT(err_, HasSubstr("attention_mask[0, 1] is not 1; expected ones alone"));
  mask = Tensor(DType::kI64, {3});
  EXPECT_EQ(run(), 1);
  EXPECT_THAT(err_, HasSubstr("attention_mask has shape [3]; expected that of input_ids, [1, 3]"));
  mask = Tensor(DType::kF32, {1, 3});
  EXPECT_EQ(run(), 1);
  EXPECT_THAT(err_, HasSubstr("attention_mask is F32; expected"));
}

TEST_F(LogitsCommandTest, RefusesBadFilesAndFlags) {
  const std::string golden = GoldenFile("kvm_sqrt");
  EXPECT_EQ(RunOn("kvm_sqrt", "absent.safetensors", Path("out")), 1);
  EXPECT_THAT(err_, HasSubstr("absent.safetensors"));
  EXPECT_EQ(RunOn("no_such_model", golden, Path("out")), 1);
  EXPECT_THAT(err_, HasSubstr("testing/golden/no_such_model"));
  EXPECT_EQ(RunOn("kvm_sqrt", golden, "absent/folder/out"), 1);
  EXPECT_THAT(err_, HasSubstr("absent/folder"));
  EXPECT_EQ(RunOn("kvm_sqrt", golden, Path("out"), {"--pieces=0"}), 2);
  EXPECT_EQ(RunOn("kvm_sqrt", golden, Path("out"), {"--weights=int4"}), 2);
  EXPECT_THAT(err_, HasSubstr("--weights=int4: expected as-is, f32, bf16 or int8"));
  EXPECT_EQ(RunOn("kvm_sqrt", golden, Path("out"), {"--state=int4"}), 2);
  EXPECT_THAT(err_, HasSubstr("--state=int4: expected one of f32, bf16, int8"));
  EXPECT_EQ(RunOn("kvm_sqrt", golden, Path("out"), {"--device=cuda"}), 1);
  EXPECT_THAT(err_, HasSubstr("built without CUDA"));
  EXPECT_EQ(RunOn("kvm_sqrt", golden, Path("out"), {"--device=tpu"}), 2);
  EXPECT_EQ(RunOn("kvm_sqrt", golden, Path("out"), {"--piece=1"}), 2);
  EXPECT_THAT(err_, HasSubstr("did you mean --pieces?"));
  EXPECT_EQ(Run({"logits", "--model=" + Golden("kvm_sqrt")}), 2);
  EXPECT_THAT(err_, HasSubstr("--ids is missing"));
  EXPECT_FALSE(Exists(Path("out")));
}

TEST_F(LogitsCommandTest, OutputsAreNoOtherFile) {
  const std::string golden = GoldenFile("kvm_sqrt");
  const std::string ids = Path("ids"), link = Path("link"), out = Path("out");
  WriteAll(ids, ReadAll(golden));
  std::filesystem::remove(link);
  std::filesystem::create_symlink(ids, link);
  const struct {
    std::string out, state_out, message;
  } cases[] = {
      {ids, "", "--out and --ids are the same file"},
      {link, "", "--out and --ids are the same file"},
      {out, ids, "--state-out and --ids are the same file"},
      {out, link, "--state-out and --ids are the same file"},
      {out, out, "--state-out and --out are the same file"},
      {out, testing::TempDir() + "/./" + out.substr(out.rfind('/') + 1), "--state-out and --out are the same"}};
  for (const auto& c : cases) {
    std::vector<std::string> more;
    if (!c.state_out.empty()) more.push_back("--state-out=" + c.state_out);
    EXPECT_EQ(RunOn("kvm_sqrt", ids, c.out, more), 2) << c.out << " " << c.state_out;
    EXPECT_THAT(err_, HasSubstr(c.message));
    EXPECT_FALSE(Exists(out));
    EXPECT_EQ(ReadAll(ids) == ReadAll(golden), true);
  }
}

TEST_F(LogitsCommandTest, OutputsAreNoFileOfTheModel) {
  const std::string folder = Path("model"), ids = GoldenFile("kvm_sqrt");
  std::filesystem::remove_all(folder);
  ASSERT_EQ(Run({"convert", Golden("kvm_sqrt"), folder}), 0) << err_;
  std::filesystem::remove(folder + ".kvm");
  ASSERT_EQ(Run({"convert", folder, folder + ".kvm"}), 0) << err_;
  const std::string weights = ReadAll(folder + "/model.safetensors"), packed = ReadAll(folder + ".kvm");
  const struct {
    std::string model, out;
  } cases[] = {{folder, folder + "/model.safetensors"},
               {folder, folder + "/stack.textproto"},
               {folder + "/model.safetensors", folder + "/config.json"},
               {folder + ".kvm", folder + ".kvm"}};
  for (const auto& c : cases) {
    const std::vector<std::string> run = {"logits", "--model=" + c.model, "--ids=" + ids};
    std::vector<std::string> args = run;
    args.push_back("--out=" + c.out);
    EXPECT_EQ(Run(args), 2);
    EXPECT_THAT(err_, HasSubstr("--out=" + c.out + " is a file of --model=" + c.model));
    args = run;
    args.insert(args.end(), {"--out=" + Path("out"), "--state-out=" + c.out});
    EXPECT_EQ(Run(args), 2);
    EXPECT_THAT(err_, HasSubstr("--state-out=" + c.out + " is a file of"));
  }
  EXPECT_EQ(ReadAll(folder + "/model.safetensors") == weights, true);
  EXPECT_EQ(ReadAll(folder + ".kvm") == packed, true);
  EXPECT_FALSE(Exists(folder + "/stack.textproto"));
  EXPECT_EQ(Run({"logits", "--model=" + folder, "--ids=" + ids, "--out=" + folder + "/logits.safetensors"}), 0) << err_;
}

TEST_F(LogitsCommandTest, BadVariablesAreNamed) {
  const struct {
    const char *variable, *value;
    int exit_status;
  } cases[] = {{"KVM_THREADS", "many", 2}, {"KVM_DEVICE", "tpu", 2},   {"KVM_DEVICE", "cuda", 1},
               {"KVM_WEIGHTS", "f8", 2},   {"KVM_WEIGHTS", "int4", 2}, {"KVM_STATE", "int4", 2},
               {"KVM_SEED", "-1", 2}};
  for (const auto& c : cases) {
    ASSERT_EQ(setenv(c.variable, c.value, 1), 0);
    EXPECT_EQ(
        Run({"logits", "--model=" + Golden("kvm_sqrt"), "--ids=" + GoldenFile("kvm_sqrt"), "--out=" + Path("out")}),
        c.exit_status);
    EXPECT_THAT(err_, HasSubstr(std::string("kvm: ") + c.variable + "=" + c.value));
    ASSERT_EQ(unsetenv(c.variable), 0);
  }
}

// Random weights and states that no machine holds are refused before any is made.
TEST_F(LogitsCommandTest, RefusesStacksBeyondTheMemory) {
  const struct {
    const char *spec, *message;
  } cases[] = {
      {R"(vocab_size: 8000000 width: 65536 mlp_expansion: 0.001 layers: "r" mixers { name: "r" rwkv7 { num_heads: 1024 } })",
       "the new weights take 3.9 TiB and this machine has"},
      {R"(vocab_size: 64 width: 1024 layers: ["k", "k", "k", "k"]
          mixers { name: "k" kvm { projections { num_heads: 1 } chunk_len: 16777216 num_sinks: 1 } })",
       "states of a single token take "},
      {R"(vocab_size: 64 width: 1024 layers: ["k", "k", "k", "k"]
          mixers { name: "k" kvm { projections { num_heads: 1 } chunk_len: 16777216 num_sinks: 1 } })",
       "mixer \"k\" begins with a whole block of chunk_len 16777216 tokens: choose a smaller chunk_len"}};
  for (const auto& c : cases) {
    WriteAll(Path("stack.textproto"), c.spec);
    EXPECT_EQ(Run({"logits", "--model=" + Path("stack.textproto"), "--ids=" + GoldenFile("kvm_sqrt"),
                   "--out=" + Path("out")}),
              1);
    EXPECT_THAT(err_, HasSubstr(c.message));
    EXPECT_FALSE(Exists(Path("out")));
  }
}

TEST_F(LogitsCommandTest, InterruptWhileWeightsAreDrawn) {
  WriteAll(Path("stack.textproto"),
           R"(vocab_size: 64 width: 64 layers: "r" mixers { name: "r" rwkv7 { num_heads: 1 } })");
  interrupted_ = true;
  EXPECT_EQ(
      Run({"logits", "--model=" + Path("stack.textproto"), "--ids=" + GoldenFile("kvm_sqrt"), "--out=" + Path("out")}),
      130);
  EXPECT_FALSE(Exists(Path("out")));
}

TEST_F(LogitsCommandTest, LogitsThatAreNoNumbersAreWrittenAndSaid) {
  const std::string model = Path("m.safetensors"), ids = Path("ids"), out = Path("out");
  ASSERT_EQ(Run({"convert", Golden("kvm_sqrt"), model}), 0) << err_;
  WriteTensor(ids, "input_ids", Tensor::FromInts({2, 3}, {1, 2, 3, 4, 5, 6}));
  ASSERT_EQ(Run({"logits", "--model=" + model, "--ids=" + ids, "--out=" + out}), 0) << err_;
  EXPECT_EQ(err_.find("note:"), std::string::npos) << err_;
  Poison(model, "transformer.h.1.attn.c_v.weight");
  ASSERT_EQ(Run({"logits", "--model=" + model, "--ids=" + ids, "--out=" + Path("nan")}), 0) << err_;
  EXPECT_THAT(err_,
              HasSubstr("note: 384 of 384 logits are NaN or infinite, the first of them of sequence 0 at position "
                        "0; the model's weights may be broken"));
  EXPECT_TRUE(Exists(Path("nan")));
}

TEST_F(LogitsCommandTest, InterruptLeavesNoFile) {
  interrupted_ = true;
  EXPECT_EQ(RunOn("kvm_sqrt", GoldenFile("kvm_sqrt"), Path("out")), 130);
  EXPECT_FALSE(Exists(Path("out")));
}

// The seam of engines, from the command line: another device gives the same numbers, in pieces the same bits.
TEST_F(LogitsCommandTest, IsServedByAnyEngine) {
  devices_ = {{"reference", NewReferenceEngine}};
  const std::string golden = GoldenFile("kvm_sqrt");
  ASSERT_EQ(RunOn("kvm_sqrt", golden, Path("whole"), {"--device=reference"}), 0) << err_;
  ExpectNear(Path("whole"), "logits", golden, "logits_full");
  ASSERT_EQ(RunOn("kvm_sqrt", golden, Path("pieces"), {"--device=reference", "--pieces=9,1,5"}), 0) << err_;
  EXPECT_EQ(ReadAll(Path("pieces")), ReadAll(Path("whole")));
  EXPECT_EQ(RunOn("kvm_sqrt", golden, Path("out"), {"--device=tpu"}), 2);
  EXPECT_THAT(err_, HasSubstr("--device=tpu: expected cpu, reference, cuda or auto"));
}

}  // namespace
}  // namespace kvm
