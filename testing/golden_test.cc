// Every golden folder, and that the checker is able to fail.

#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/io/tensors/safetensors.h"
#include "testing/golden_check.h"
#include "testing/golden_folders.h"

namespace kvm {
namespace {

std::string FolderName(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

class GoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, AgreesWithThePublishedCode) {
  const absl::StatusOr<GoldenReport> report = CheckGolden(GoldenRoot() + "/" + GetParam(), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->passed()) << FormatReport(*report);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest, ::testing::ValuesIn(GoldenFolders()), FolderName);

TEST(GoldenFoldersTest, AllThatAreNeededAreThere) {
  const std::vector<std::string> folders = GoldenFolders();
  const std::set<std::string> found(folders.begin(), folders.end());
  const std::string needed =
      "gptalpha_bswa gptalpha_full gptalpha_full_bf16rope gptalpha_nope_swa kvm_block_extras kvm_fixed "
      "kvm_gate_initial_state kvm_gqa kvm_gqa_post_tokenshift kvm_no_append_gate kvm_no_head_temps kvm_no_merge_gate "
      "kvm_no_sink kvm_no_vlens kvm_rwkv7_hybrid kvm_saturate_swa kvm_short kvm_sqrt kvm_sqrt_bf16rope ovq_plain "
      "ovq_swa rwkv7";
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(needed, ' '))) {
    EXPECT_EQ(found.count(name), 1u) << name;
  }
}

// A writable copy of kvm_short.
std::string CopyFolder(const std::string& name) {
  const std::string copy = ::testing::TempDir() + "/" + name;
  std::filesystem::create_directories(copy);
  for (const char* file : {"config.json", "model.safetensors", "golden.safetensors"}) {
    std::filesystem::copy_file(GoldenRoot() + "/kvm_short/" + file, copy + "/" + file,
                               std::filesystem::copy_options::overwrite_existing);
  }
  return copy;
}

// Rewrites a safetensors file with `change` applied to the tensors, by name. A null change leaves the tensor out.
void Rewrite(const std::string& path, const std::string& name, const std::function<Tensor(Tensor)>& change) {
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<NamedTensor> changed;
  std::vector<NamedTensorView> tensors;
  for (const std::string& n : (*file)->Names()) {
    const TensorView& view = *(*file)->Find(n);
    if (n != name) {
      tensors.push_back({n, view});
    } else if (change != nullptr) {
      Tensor copy(view.dtype, view.shape);
      std::memcpy(copy.bytes(), view.data, view.byte_size());
      changed.push_back({n, change(std::move(copy))});
    }
  }
  for (const NamedTensor& t : changed) tensors.push_back({t.name, t.tensor.view()});
  const absl::Status written = WriteSafetensors(path + ".new", tensors);
  ASSERT_TRUE(written.ok()) << written;
  std::filesystem::rename(path + ".new", path);
}

// The quantities that fail, joined.
std::string FailedQuantities(const std::string& folder) {
  const absl::StatusOr<GoldenReport> report = CheckGolden(folder, {});
  if (!report.ok()) return report.status().ToString();
  std::string failed;
  for (const GoldenLine& line : report->lines) {
    if (!line.passed()) absl::StrAppend(&failed, line.quantity, ";");
  }
  return failed;
}

std::function<Tensor(Tensor)> AddToEntry(int64_t index, float amount) {
  return [index, amount](Tensor tensor) {
    tensor.floats()[index] += amount;
    return tensor;
  };
}

TEST(GoldenCheckTest, NoticesAPerturbedWeight) {
  const std::string folder = CopyFolder("weight");
  Rewrite(folder + "/model.safetensors", "transformer.h.1.attn.c_v.weight", AddToEntry(5, 0.05f));
  const std::string failed = FailedQuantities(folder);
  EXPECT_TRUE(absl::StrContains(failed, "logits, whole sequence;")) << failed;
  EXPECT_TRUE(absl::StrContains(failed, "hidden_after_layer_1;")) << failed;
  EXPECT_TRUE(absl::StrContains(failed, "state kvm_s_v;")) << failed;
  EXPECT_FALSE(absl::StrContains(failed, "hidden_after_layer_0")) << failed;
}

TEST(GoldenCheckTest, NoticesEveryKindOfChangedNumber) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"logits_full", "logits, whole sequence;"},
      {"logits_decode", "logits, prefill and single steps;"},
      {"hidden_after_layer_0", "hidden_after_layer_0;"},
      {"cache.0.kvm_s_k", "state kvm_s_k;state kvm_s_k: rows apart;"},
      {"cache.1.kvm_s_vlen", "state kvm_s_vlen;state kvm_s_vlen: rows apart;"},
      {"cache.1.att_q_final_token", "state att_q_final_token;"},
      {"debug.angular_freq", "debug.angular_freq;"},
  };
  for (const auto& [name, expected] : cases) {
    const std::string folder = CopyFolder("number");
    Rewrite(folder + "/golden.safetensors", name, AddToEntry(3, 0.01f));
    EXPECT_EQ(FailedQuantities(folder), expected) << name;
  }
}

TEST(GoldenCheckTest, NoticesAnotherPosition) {
  const std::string folder = CopyFolder("position");
  Rewrite(folder + "/golden.safetensors", "cache.1.kvm_bswa_begin",
          [](const Tensor&) { return Tensor::FromInts({}, {40}); });
  EXPECT_EQ(FailedQuantities(folder), "state kvm_bswa_begin;");
}

TEST(GoldenCheckTest, NoticesAnotherNumberOfRows) {
  const std::string folder = CopyFolder("rows");
  Rewrite(folder + "/golden.safetensors", "cache.1.kvm_s_vlen", [](const Tensor&) {
    return Tensor(DType::kF32, {2, 2, 17, 1});
  });
  EXPECT_EQ(FailedQuantities(folder), "state kvm_s_vlen;");
}

TEST(GoldenCheckTest, ErrorsNameWhatIsWrong) {
  const auto error = [](const std::string& folder) {
    const absl::StatusOr<GoldenReport> report = CheckGolden(folder, {});
    return report.ok() ? "OK" : std::string(report.status().message());
  };
  const auto with_tensor = [&](const std::string& name, const std::function<Tensor(Tensor)>& change) {
    const std::string folder = CopyFolder("broken");
    Rewrite(folder + "/golden.safetensors", name, change);
    return error(folder);
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    return absl::StrContains(text, part) ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << text;
  };

  EXPECT_TRUE(contains(error(::testing::TempDir() + "/nowhere"), "nowhere/golden.safetensors"));
  const std::string bare = CopyFolder("bare");
  std::filesystem::remove(bare + "/golden.safetensors");
  EXPECT_TRUE(contains(error(bare), "bare/golden.safetensors"));
  const std::string weightless = CopyFolder("weightless");
  std::filesystem::remove(weightless + "/model.safetensors");
  EXPECT_TRUE(contains(error(weightless), "weightless"));

  EXPECT_TRUE(contains(with_tensor("input_ids", nullptr), "input_ids"));
  EXPECT_TRUE(contains(with_tensor("input_ids", [](Tensor t) { return Tensor(DType::kF32, t.shape()); }), "input_ids"));
  EXPECT_TRUE(contains(with_tensor("input_ids",
                                   [](Tensor t) {
                                     static_cast<int64_t*>(t.bytes())[7] = -1;
                                     return t;
                                   }),
                       "input_ids[0, 7] is -1"));
  EXPECT_TRUE(contains(with_tensor("input_ids",
                                   [](Tensor t) {
                                     static_cast<int64_t*>(t.bytes())[7] = 64;
                                     return t;
                                   }),
                       "token 7 is 64"));
  EXPECT_TRUE(contains(with_tensor("prefill_len", [](const Tensor&) { return Tensor::FromInts({}, {60}); }),
                       "prefill_len is 60"));
  EXPECT_TRUE(contains(with_tensor("logits_full", nullptr), "logits_full: missing"));
  EXPECT_TRUE(contains(with_tensor("logits_decode",
                                   [](const Tensor&) {
                                     return Tensor(DType::kF32, {2, 3});
                                   }),
                       "logits_decode: got F32 [2, 3]"));

  // A state tensor that nothing here corresponds to.
  const std::string unknown = CopyFolder("unknown");
  const std::string path = unknown + "/golden.safetensors";
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<NamedTensorView> tensors;
  for (const std::string& name : (*file)->Names()) tensors.push_back({name, *(*file)->Find(name)});
  const Tensor extra(DType::kF32, {2, 3});
  tensors.push_back({"cache.1.kvm_dreams", extra.view()});
  ASSERT_TRUE(WriteSafetensors(path + ".new", tensors).ok());
  std::filesystem::rename(path + ".new", path);
  EXPECT_TRUE(contains(error(unknown), "cache.1.kvm_dreams"));

  // A single layer instead of a stack.
  const std::string layer = CopyFolder("layer");
  ASSERT_TRUE(WriteFileAtomically(layer + "/config.json", R"({"layer": "mamba"})").ok());
  EXPECT_TRUE(contains(error(layer), "layer: got \"mamba\", expected"));
}

}  // namespace
}  // namespace kvm
