// Every folder of a single layer, and that their check is able to fail.

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/kernels/tensor.h"
#include "testing/golden_check.h"
#include "testing/golden_folders.h"

namespace kvm {
namespace {

class GoldenLayersTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenLayersTest, AgreesWithThePublishedCode) {
  const absl::StatusOr<GoldenReport> report = CheckGolden(GoldenLayerRoot() + "/" + GetParam(), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->passed()) << FormatReport(*report);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenLayersTest, ::testing::ValuesIn(GoldenLayerFolders()),
                         [](const auto& info) { return info.param; });

TEST(GoldenLayerFoldersTest, AllThatAreNeededAreThere) {
  EXPECT_EQ(GoldenLayerFolders(),
            (std::vector<std::string>{"gdn_basic", "gdn_expand_v2_noneg", "gdn_gva", "gdn_initial_state",
                                      "gdn_neg_eigval", "kda_basic", "kda_conv_bias", "kda_gva", "kda_initial_state"}));
}

// A writable copy of a folder.
std::string CopyFolder(const std::string& folder, const std::string& name) {
  const std::string copy = ::testing::TempDir() + "/layer_" + name;
  std::filesystem::create_directories(copy);
  for (const char* file : {"config.json", "weights.safetensors", "golden.safetensors"}) {
    std::filesystem::copy_file(GoldenLayerRoot() + "/" + folder + "/" + file, copy + "/" + file,
                               std::filesystem::copy_options::overwrite_existing);
  }
  return copy;
}

// Rewrites a safetensors file: adds to an entry in the middle of the tensor, or with an amount of 0 leaves the tensor
// out.
void Change(const std::string& path, const std::string& name, float amount) {
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_NE((*file)->Find(name), nullptr) << name;
  std::vector<float> values = ReadFloats(*(*file)->Find(name));
  values[values.size() / 2] += amount;
  const Tensor changed = Tensor::FromFloats((*file)->Find(name)->shape, values);
  std::vector<NamedTensorView> tensors;
  for (const std::string& n : (*file)->Names()) {
    if (n != name) {
      tensors.push_back({n, *(*file)->Find(n)});
    } else if (amount != 0) {
      tensors.push_back({n, changed.view()});
    }
  }
  const absl::Status written = WriteSafetensors(path + ".new", tensors);
  ASSERT_TRUE(written.ok()) << written;
  std::filesystem::rename(path + ".new", path);
}

// The quantities that fail, joined; or the error.
std::string Failures(const std::string& folder) {
  const absl::StatusOr<GoldenReport> report = CheckGolden(folder, {});
  if (!report.ok()) return std::string(report.status().message());
  std::string failed;
  for (const GoldenLine& line : report->lines) {
    if (!line.passed()) absl::StrAppend(&failed, line.quantity, ";");
  }
  return failed;
}

TEST(GoldenLayerCheckTest, NoticesEveryKindOfChangedNumber) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"y", "y, whole sequence;"},
      {"y_stepwise", "y, prefill and single steps;"},
      {"state.recurrent", "state recurrent;"},
      {"state.conv_k", "state conv_k;"},
  };
  for (const auto& [name, expected] : cases) {
    const std::string folder = CopyFolder("kda_initial_state", "number");
    Change(folder + "/golden.safetensors", name, 1e-3f);
    EXPECT_EQ(Failures(folder), expected) << name;
  }
}

TEST(GoldenLayerCheckTest, NoticesAnotherInitialState) {
  for (const char* name : {"initial_recurrent", "initial_conv_q", "initial_conv_k", "initial_conv_v"}) {
    const std::string folder = CopyFolder("gdn_initial_state", "initial");
    Change(folder + "/golden.safetensors", name, 0.5f);
    EXPECT_TRUE(absl::StrContains(Failures(folder), "y, whole sequence;")) << name;
  }
}

TEST(GoldenLayerCheckTest, NoticesEveryPerturbedWeight) {
  for (const char* original : {"gdn_gva", "kda_conv_bias"}) {
    const auto weights = SafetensorsFile::Open(GoldenLayerRoot() + "/" + original + "/weights.safetensors");
    ASSERT_TRUE(weights.ok()) << weights.status();
    for (const std::string& name : (*weights)->Names()) {
      const std::string folder = CopyFolder(original, "weight");
      Change(folder + "/weights.safetensors", name, 0.5f);
      EXPECT_TRUE(absl::StrContains(Failures(folder), "y, whole sequence;")) << original << ", " << name;
    }
  }
}

TEST(GoldenLayerCheckTest, ErrorsNameWhatIsWrong) {
  const auto without = [](const std::string& file, const std::string& tensor) {
    const std::string folder = CopyFolder("gdn_initial_state", "broken");
    Change(folder + "/" + file, tensor, 0);
    return Failures(folder);
  };
  EXPECT_TRUE(absl::StrContains(without("weights.safetensors", "A_log"), "A_log: missing, expected shape [2]"));
  for (const char* tensor : {"y", "y_stepwise", "state.conv_v", "initial_conv_k"}) {
    EXPECT_TRUE(absl::StrContains(without("golden.safetensors", tensor), absl::StrCat(tensor, ": missing"))) << tensor;
  }
  EXPECT_TRUE(absl::StrContains(without("golden.safetensors", "x"), "x: expected F32 of shape [B, T, 36]"));

  const auto with_config = [](const std::string& from, const std::string& to) {
    const std::string folder = CopyFolder("kda_basic", "config");
    const absl::StatusOr<std::string> text = ReadFile(folder + "/config.json");
    EXPECT_TRUE(text.ok()) << text.status();
    const std::string changed = absl::StrReplaceAll(*text, {{from, to}});
    EXPECT_NE(changed, *text) << from;
    EXPECT_TRUE(WriteFileAtomically(folder + "/config.json", changed).ok());
    return Failures(folder);
  };
  EXPECT_TRUE(absl::StrContains(with_config("\"kda\"", "\"mamba\""), "layer: got \"mamba\", expected one of"));
  EXPECT_TRUE(absl::StrContains(with_config("\"hidden_size\"", "\"size\""), "hidden_size: got"));
  EXPECT_TRUE(absl::StrContains(with_config("\"expand_v\": 1", "\"expand_v\": 0"), "expand_v: got 0"));
  EXPECT_TRUE(absl::StrContains(with_config("\"expand_v\": 1", "\"expand_v\": 2"), "v_proj.weight: has shape"));
  EXPECT_TRUE(absl::StrContains(with_config("\"conv_size\": 4", "\"conv_size\": 40"), "convolution.size: got 40"));
  EXPECT_TRUE(absl::StrContains(with_config("\"conv_bias\": false", "\"conv_bias\": true"), "q_conv1d.bias: missing"));
  EXPECT_TRUE(
      absl::StrContains(with_config("\"lower_bound\": null", "\"lower_bound\": 1"), "decay_lower_bound: got 1"));
}

}  // namespace
}  // namespace kvm
