// Official RWKV-7 checkpoints from file to logits, against double precision numbers made beside them
// (testing/data/rwkv_pth/make_rwkv_pth.py).

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/io/model_file.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/io/torch/torch_file.h"
#include "kvm/model/language_model.h"
#include "testing/conformance/model_runs.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

constexpr double kTolerance = 1e-4;

std::string Data(const std::string& name) { return "testing/data/rwkv_pth/" + name; }

// The largest deviation of the logits of the model at `path` from those called logits_`dtype`; all tokens at once, then
// in pieces.
void ExpectLogits(const std::string& path, const std::string& dtype) {
  const absl::StatusOr<OpenedModel> opened = OpenModel(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(Name(opened->kind), "RWKV-7 checkpoint");
  const auto model = LanguageModel::Create(opened->model.spec, *opened->model.weights, {});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto expected_file = SafetensorsFile::Open(Data("x070_expected.safetensors"));
  ASSERT_TRUE(expected_file.ok()) << expected_file.status();
  const std::vector<float> ids = ReadFloats(*(*expected_file)->Find("input_ids"));
  const std::vector<int32_t> tokens(ids.begin(), ids.end());
  const std::vector<float> expected = ReadFloats(*(*expected_file)->Find("logits_" + dtype));

  ExecutionContext context(/*num_threads=*/2);
  for (const std::vector<int64_t>& pieces : {std::vector<int64_t>{}, std::vector<int64_t>{7, 1}}) {
    SequenceState sequence = (*model)->NewSequence();
    const auto runs = RunInPieces(**model, {{&sequence, tokens, pieces}}, context);
    ASSERT_TRUE(runs.ok()) << runs.status();
    const std::vector<float>& logits = (*runs)[0].logits;
    ASSERT_EQ(logits.size(), expected.size());
    double largest = 0, spread = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double error = std::abs(static_cast<double>(logits[i]) - expected[i]);
      if (!(error <= largest)) largest = error;
      spread = std::max(spread, std::abs(static_cast<double>(expected[i])));
    }
    EXPECT_LT(largest, kTolerance);
    EXPECT_GT(spread, 1);
  }
}

TEST(RwkvPth, LogitsOfFloat32) { ExpectLogits(Data("x070_f32.pth"), "f32"); }
TEST(RwkvPth, LogitsOfBFloat16) { ExpectLogits(Data("x070_bf16.pth"), "bf16"); }
TEST(RwkvPth, LogitsOfFloat16) { ExpectLogits(Data("x070_f16.pth"), "f16"); }

TEST(RwkvPth, TheSameTensorsInASafetensorsFile) {
  const auto file = TorchFile::Open(Data("x070_bf16.pth"));
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<NamedTensorView> tensors;
  for (const std::string& name : (*file)->Names()) tensors.push_back({name, *(*file)->Find(name)});
  // Whatever it is called.
  const std::string path = ::testing::TempDir() + "/renamed.bin";
  ASSERT_TRUE(WriteSafetensors(path, tensors).ok());
  ExpectLogits(path, "bf16");
}

TEST(RwkvPth, TakesTheTokenizerBesideIt) {
  const std::string folder = ::testing::TempDir() + "/beside";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(Data("x070_bf16.pth"), folder + "/m.pth");
  EXPECT_EQ(OpenModel(folder + "/m.pth")->model.tokenizer_path, "");
  std::ofstream(folder + "/rwkv_vocab_v20230424.txt") << "1 'a' 1\n";
  EXPECT_EQ(OpenModel(folder + "/m.pth")->model.tokenizer_path, folder + "/rwkv_vocab_v20230424.txt");
  std::filesystem::remove_all(folder);
}

TEST(RwkvPth, NoOtherCheckpointIsAModel) {
  const absl::StatusOr<OpenedModel> opened = OpenModel(Data("state_dict.pth"));
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(opened.status().message()),
      HasSubstr("state_dict.pth: a PyTorch checkpoint, of which only those of RWKV-7 are read alone; its tensors"));
}

}  // namespace
}  // namespace kvm
