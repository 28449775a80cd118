// Tiny files that claim huge sizes: no reader takes memory for what is not there, and none says more about it than fits
// a screen.

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/content_hash.h"
#include "kvm/io/model_file.h"
#include "kvm/io/tensors/packed.pb.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/io/tokenizer/byte_level_bpe.h"
#include "kvm/io/tokenizer/world_tokenizer.h"
#include "kvm/io/torch/torch_file.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/stack/stack_spec.h"
#include "testing/allocation_peak.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr size_t kKiB = 1024;

std::string LittleEndian(uint64_t value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

// A stack of width 32 with as many layers as there may be.
std::string DeepStack() {
  std::string text = "width: 32 mixers { name: \"m\" rwkv7 { num_heads: 2 } }";
  for (int i = 0; i < 4096; ++i) text += " layers: \"m\"";
  return text;
}

class DeclaredSizesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              absl::StrCat("declared_", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string Write(const std::string& name, const std::string& bytes) const {
    EXPECT_TRUE(WriteFileAtomically(Path(name), bytes).ok());
    return Path(name);
  }

  // The message with which `read` refuses its input, for which it may take `most` bytes.
  static std::string Refusal(size_t most, absl::FunctionRef<absl::Status()> read) {
    absl::Status status;
    const size_t peak = AllocationPeak([&] { status = read(); });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_LE(peak, most) << status;
    EXPECT_LE(status.message().size(), 4 * kKiB) << status;
    return std::string(status.message());
  }
  static std::string RefusedModel(size_t most, const std::string& path) {
    return Refusal(most, [&] { return OpenModel(path).status(); });
  }

  fs::path folder_;
};

// A header may be padded with as many spaces as it likes.
TEST_F(DeclaredSizesTest, SpacesBehindASafetensorsHeader) {
  const std::string header = "{}" + std::string(4 * kKiB * kKiB, ' ');
  const std::string path = Write("m.safetensors", LittleEndian(header.size()) + header);
  absl::Status status;
  EXPECT_LE(AllocationPeak([&] { status = SafetensorsFile::Open(path).status(); }), 16 * kKiB);
  EXPECT_TRUE(status.ok()) << status;
}

// The layers of a spec are text, of which each takes up three bytes; all else about them is not there.
TEST_F(DeclaredSizesTest, LayersOfAPackedModel) {
  PackedHeader header;
  header.set_version(1);
  *header.mutable_spec() = *ParseStackSpec(DeepStack(), "stack");
  const std::string message = header.SerializeAsString();
  ContentHash hash;
  hash.Add(message);
  std::string bytes = absl::StrCat("KVMPACK\n", LittleEndian(message.size()), LittleEndian(hash.Value()), message);
  bytes.resize((bytes.size() + 63) / 64 * 64);
  ASSERT_LT(bytes.size(), 16 * kKiB);
  EXPECT_THAT(RefusedModel(512 * kKiB, Write("m.kvm", bytes)),
              HasSubstr("transformer.h.{0..4095}: missing entirely; transformer.ln_head.weight: missing"));
}

TEST_F(DeclaredSizesTest, LayersOfAConfig) {
  const float value = 0;
  ASSERT_TRUE(WriteSafetensors(Path("model.safetensors"), {{"x", {DType::kF32, {}, &value}}}).ok());
  Write("config.json", R"({"model_type": "rwkv7backbone", "num_hidden_layers": 4096, "alt_layer_every": 2})");
  const std::string message = RefusedModel(512 * kKiB, folder_.string());
  EXPECT_THAT(message, HasSubstr("transformer.h.{0..4095}: missing entirely"));
  EXPECT_THAT(message, HasSubstr("x: unexpected"));
  // More than there may be are not even counted up to.
  Write("config.json", R"({"model_type": "rwkv7backbone", "num_hidden_layers": 2147483647})");
  EXPECT_THAT(RefusedModel(128 * kKiB, folder_.string()), HasSubstr("num_hidden_layers: got 2147483647"));
}

TEST_F(DeclaredSizesTest, WidthsOfAConfig) {
  const float value = 0;
  ASSERT_TRUE(WriteSafetensors(Path("model.safetensors"), {{"lm_head.weight", {DType::kF32, {}, &value}}}).ok());
  Write("config.json", R"({"model_type": "rwkv7backbone", "hidden_size": 65536, "num_attention_heads": 65536,
                           "num_hidden_layers": 1, "vocab_size": 1048576, "token_mixer": "kvm",
                           "rope_partial_dim": 0, "chunk_len": 16777216, "n_bswa_chunks": 16777216})");
  EXPECT_THAT(RefusedModel(128 * kKiB, folder_.string()),
              HasSubstr("lm_head.weight: has shape [], expected [1048576, 65536]"));
}

TEST_F(DeclaredSizesTest, LayersInAFilesMetadata) {
  const float value = 0;
  ASSERT_TRUE(WriteSafetensors(Path("m.safetensors"), {{"transformer.h.7.lambdas", {DType::kF32, {}, &value}}},
                               {{"kvm.stack", DeepStack()}})
                  .ok());
  const std::string message = RefusedModel(kKiB * kKiB, Path("m.safetensors"));
  EXPECT_THAT(message, HasSubstr("transformer.h.{0..6,8..4095}: missing entirely"));
  EXPECT_THAT(message, HasSubstr("transformer.h.7.lambdas: unexpected"));
  EXPECT_THAT(message, HasSubstr("transformer.h.7.mlp.c_fc.weight: missing, expected shape [128, 32]"));
}

TEST_F(DeclaredSizesTest, SafetensorsHeaders) {
  const auto file = [&](const std::string& header, uint64_t length) {
    return Write("x.safetensors", absl::StrCat(LittleEndian(length), header));
  };
  const std::string shape = R"({"x":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}})";
  const std::string beyond = file(shape, shape.size());
  EXPECT_THAT(Refusal(16 * kKiB, [&] { return SafetensorsFile::Open(beyond).status(); }), HasSubstr("lie beyond"));
  for (const uint64_t length : {uint64_t{100} << 20, uint64_t{1} << 40, ~uint64_t{0}}) {
    const std::string path = file("{}", length);
    EXPECT_THAT(Refusal(16 * kKiB, [&] { return SafetensorsFile::Open(path).status(); }), HasSubstr("a header of"));
  }
}

// Sizes come from few tensors, before the others are known to be there: [1, R] and [1, W] alone claim a matrix [R, W].
TEST_F(DeclaredSizesTest, WidthsOfAnRwkvCheckpoint) {
  constexpr int64_t kLong = 16384;
  const std::vector<float> zeros(kLong);
  const auto view = [&](Shape shape) { return TensorView{DType::kF32, std::move(shape), zeros.data()}; };
  const std::vector<NamedTensorView> tensors = {
      {"emb.weight", view({1, kLong})},           {"blocks.0.ln0.weight", view({1})},
      {"blocks.0.att.r_k", view({1, kLong})},     {"blocks.0.att.w1", view({1, kLong})},
      {"blocks.0.att.a1", view({1, kLong})},      {"blocks.0.att.g1", view({1, kLong})},
      {"blocks.0.ffn.key.weight", view({32, 1})}, {"blocks.1.att.v1", view({1, kLong})},
  };
  ASSERT_TRUE(WriteTorchFile(Path("m.pth"), tensors).ok());
  absl::Status status;
  const size_t peak = AllocationPeak([&] { status = OpenModel(Path("m.pth")).status(); });
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("blocks.1.att.v1: has shape [1, 16384], expected [16384, 16384]"));
  EXPECT_LE(peak, 256 * kKiB);
}

TEST_F(DeclaredSizesTest, BlocksOfAnRwkvCheckpoint) {
  const float value = 0;
  const TensorView view = {DType::kF32, {1, 1}, &value};
  ASSERT_TRUE(WriteTorchFile(Path("m.pth"), {{"emb.weight", view},
                                             {"blocks.0.ln0.weight", view},
                                             {"blocks.4095.att.w1", view},
                                             {"blocks.2147483647.att.w1", view}})
                  .ok());
  EXPECT_THAT(RefusedModel(128 * kKiB, Path("m.pth")), HasSubstr("blocks.1: missing, although there is blocks.4095"));
}

TEST_F(DeclaredSizesTest, StacksWithMoreMistakesThanText) {
  // 2-byte messages; each is a mixer without a name and without a kind.
  std::string bytes;
  for (int i = 0; i < 20000; ++i) bytes += std::string("\x1a\0", 2);
  StackSpec spec;
  ASSERT_TRUE(spec.ParseFromString(bytes));
  absl::Status status;
  EXPECT_LE(AllocationPeak([&] { status = ValidateStack(spec); }), 64 * kKiB);
  EXPECT_LE(status.message().size(), 16 * kKiB);
  EXPECT_THAT(std::string(status.message()), ::testing::EndsWith("; and 39901 more"));

  // Many layers that name none of many mixers.
  std::string text = "width: 32";
  for (int i = 0; i < 2000; ++i) absl::StrAppend(&text, " mixers { name: \"m", i, "\" rwkv7 { num_heads: 2 } }");
  for (int i = 0; i < 2000; ++i) text += " layers: \"x\"";
  EXPECT_LE(AllocationPeak([&] { status = ParseStackSpec(text, "stack").status(); }), 30 * text.size());
  EXPECT_LE(status.message().size(), text.size());
  EXPECT_THAT(std::string(status.message()), HasSubstr("layers[1]: got \"x\", expected the name of a mixer;"));
}

TEST_F(DeclaredSizesTest, IdsOfTokenizers) {
  const std::string json =
      R"({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 4194303}, "merges": []}, "added_tokens": []})";
  EXPECT_THAT(Refusal(64 * kKiB, [&] { return ParseByteLevelBpe(json, "tokenizer.json").status(); }),
              HasSubstr("expected at most 4111 in a file of 1 tokens"));
  // All 65,536 ids of the format have their place, whatever a line claims.
  EXPECT_THAT(Refusal(2560 * kKiB, [&] { return ParseWorldVocabulary("1 'a' 999999999", "v.txt").status(); }),
              HasSubstr("the literal has 1 bytes; expected 999999999"));
}

}  // namespace
}  // namespace kvm
