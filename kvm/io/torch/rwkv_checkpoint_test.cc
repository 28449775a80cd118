#include "kvm/io/torch/rwkv_checkpoint.h"

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/io/torch/torch_file.h"
#include "kvm/kernels/tensor.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/model/stack/canonical_stack.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/initializer.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Data(const std::string& name) { return "testing/data/rwkv_pth/" + name; }
std::string Path(const std::string& name) { return ::testing::TempDir() + "/" + name; }

std::shared_ptr<const WeightSource> OpenTorch(const std::string& path) {
  auto file = TorchFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? std::move(*file) : nullptr;
}

// The tensors of a file, of which a test changes some.
class ChangedTensors : public WeightSource {
 public:
  explicit ChangedTensors(const std::string& path) : file_(OpenTorch(path)) {
    for (const std::string& name : file_->Names()) tensors_[name] = *file_->Find(name);
  }

  std::string Description() const override { return "x.pth"; }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& entry : tensors_) names.push_back(entry.first);
    return names;
  }
  const TensorView* Find(absl::string_view name) const override {
    const auto found = tensors_.find(std::string(name));
    return found == tensors_.end() ? nullptr : &found->second;
  }

  void Remove(const std::string& name) { tensors_.erase(name); }
  void Put(const std::string& name, DType dtype, Shape shape) {
    added_.emplace_back(dtype, std::move(shape));
    tensors_[name] = added_.back().view();
  }
  void Set(const std::string& name, const Shape& shape, float value) {
    Put(name, DType::kF32, shape);
    for (float& x : added_.back().floats()) x = value;
  }

 private:
  std::shared_ptr<const WeightSource> file_;
  std::vector<Tensor> added_;
  std::map<std::string, TensorView> tensors_;
};

void ExpectSameTensors(const WeightSource& a, const WeightSource& b) {
  ASSERT_EQ(a.Names(), b.Names());
  for (const std::string& name : a.Names()) {
    const TensorView &x = *a.Find(name), &y = *b.Find(name);
    EXPECT_EQ(x.dtype, y.dtype) << name;
    ASSERT_EQ(x.shape, y.shape) << name;
    EXPECT_EQ(std::memcmp(x.data, y.data, static_cast<size_t>(x.byte_size())), 0) << name;
  }
}

RwkvCheckpoint Read(std::shared_ptr<const WeightSource> file) {
  auto checkpoint = ReadRwkvCheckpoint(std::move(file));
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  return checkpoint.ok() ? std::move(*checkpoint) : RwkvCheckpoint();
}

TEST(ReadRwkvCheckpoint, FindsAllSizes) {
  const RwkvCheckpoint checkpoint = Read(OpenTorch(Data("x070_f32.pth")));
  const StackSpec& spec = checkpoint.spec;
  EXPECT_EQ(spec.vocab_size(), 48);
  EXPECT_EQ(spec.width(), 32);
  EXPECT_EQ(MlpWidth(spec), 96);
  EXPECT_TRUE(spec.mlp_token_shift());
  EXPECT_FALSE(spec.tied_head());
  EXPECT_THAT(spec.layers(), ElementsAre("rwkv7", "rwkv7"));
  ASSERT_EQ(spec.mixers_size(), 1);
  const Rwkv7Spec& rwkv7 = spec.mixers(0).rwkv7();
  EXPECT_EQ(rwkv7.num_heads(), 2);
  EXPECT_TRUE(rwkv7.token_shift());
  EXPECT_EQ(rwkv7.decay_rank(), 8);
  EXPECT_EQ(rwkv7.in_context_rate_rank(), 6);
  EXPECT_EQ(rwkv7.value_rank(), 4);
  EXPECT_EQ(rwkv7.gate_rank(), 12);
}

TEST(ReadRwkvCheckpoint, RenamesAndTransposes) {
  const auto file = OpenTorch(Data("x070_f32.pth"));
  const RwkvCheckpoint checkpoint = Read(file);
  const std::map<std::string, std::string> same = {
      {"transformer.wte.weight", "emb.weight"},
      {"transformer.ln_emb.bias", "blocks.0.ln0.bias"},
      {"transformer.h.1.ln_attn.weight", "blocks.1.ln1.weight"},
      {"transformer.h.1.ln_mlp.weight", "blocks.1.ln2.weight"},
      {"transformer.h.0.attn.x_g", "blocks.0.att.x_g"},
      {"transformer.h.1.attn.v0", "blocks.1.att.v0"},
      {"transformer.h.1.attn.r_k", "blocks.1.att.r_k"},
      {"transformer.h.1.attn.key.weight", "blocks.1.att.key.weight"},
      {"transformer.h.1.attn.ln_x.bias", "blocks.1.att.ln_x.bias"},
      {"transformer.h.0.mlp.x_k", "blocks.0.ffn.x_k"},
      {"transformer.h.0.mlp.c_fc.weight", "blocks.0.ffn.key.weight"},
      {"transformer.h.0.mlp.c_proj.weight", "blocks.0.ffn.value.weight"},
      {"transformer.ln_head.weight", "ln_out.weight"},
      {"lm_head.weight", "head.weight"},
  };
  for (const auto& [ours, theirs] : same) {
    ASSERT_NE(checkpoint.weights->Find(ours), nullptr) << ours;
    EXPECT_EQ(checkpoint.weights->Find(ours)->data, file->Find(theirs)->data) << ours;
  }
  const TensorView& theirs = *file->Find("blocks.1.att.w1");
  const TensorView& ours = *checkpoint.weights->Find("transformer.h.1.attn.w1.weight");
  EXPECT_THAT(theirs.shape, ElementsAre(32, 8));
  ASSERT_THAT(ours.shape, ElementsAre(8, 32));
  const std::vector<float> in = ReadFloats(theirs), out = ReadFloats(ours);
  for (size_t i = 0; i < 32; ++i) {
    for (size_t rank = 0; rank < 8; ++rank) EXPECT_EQ(out[rank * 32 + i], in[i * 8 + rank]);
  }
  // Block 0 has no value gate in the file.
  EXPECT_EQ(ReadFloats(*checkpoint.weights->Find("transformer.h.0.attn.v0")), std::vector<float>(32, 0.0f));
  EXPECT_THAT(checkpoint.weights->Find("transformer.h.0.attn.v2.weight")->shape, ElementsAre(32, 4));
  EXPECT_EQ(checkpoint.weights->Description(), Data("x070_f32.pth"));
}

TEST(ReadRwkvCheckpoint, ItsMemoryOutlivesIt) {
  RwkvCheckpoint checkpoint = Read(OpenTorch(Data("x070_bf16.pth")));
  const std::shared_ptr<const void> memory = checkpoint.weights->Memory();
  const TensorView view = *checkpoint.weights->Find("lm_head.weight");
  const std::vector<float> values = ReadFloats(view);
  checkpoint.weights = nullptr;
  EXPECT_EQ(ReadFloats(view), values);
}

TEST(RwkvCheckpoint, ComesBackToTheBit) {
  for (const char* name : {"x070_f32.pth", "x070_bf16.pth", "x070_f16.pth"}) {
    SCOPED_TRACE(name);
    const auto file = OpenTorch(Data(name));
    const RwkvCheckpoint checkpoint = Read(file);
    const absl::Status written = WriteRwkvCheckpoint(Path("back.pth"), checkpoint.spec, *checkpoint.weights);
    ASSERT_TRUE(written.ok()) << written;
    ExpectSameTensors(*file, *OpenTorch(Path("back.pth")));
  }
}

TEST(RwkvCheckpoint, KeepsAValueGateOfBlock0) {
  auto file = std::make_shared<ChangedTensors>(Data("x070_f32.pth"));
  file->Set("blocks.0.att.v0", {1, 1, 32}, 0);
  file->Set("blocks.0.att.v1", {32, 4}, 0);
  file->Set("blocks.0.att.v2", {4, 32}, 0.5f);
  const RwkvCheckpoint checkpoint = Read(file);
  EXPECT_EQ(ReadFloats(*checkpoint.weights->Find("transformer.h.0.attn.v2.weight")), std::vector<float>(128, 0.5f));
  ASSERT_TRUE(WriteRwkvCheckpoint(Path("gate.pth"), checkpoint.spec, *checkpoint.weights).ok());
  ExpectSameTensors(*file, *OpenTorch(Path("gate.pth")));
}

TEST(RwkvCheckpoint, OneBlockWithoutValueGate) {
  auto file = std::make_shared<ChangedTensors>(Data("x070_f32.pth"));
  for (const std::string& name : file->Names()) {
    if (name.rfind("blocks.1.", 0) == 0) file->Remove(name);
  }
  const RwkvCheckpoint checkpoint = Read(file);
  EXPECT_EQ(checkpoint.spec.layers_size(), 1);
  ASSERT_TRUE(WriteRwkvCheckpoint(Path("one.pth"), checkpoint.spec, *checkpoint.weights).ok());
  ExpectSameTensors(*file, *OpenTorch(Path("one.pth")));
}

// A stack as official checkpoints have them, with weights to write.
StackSpec PlainSpec(int width, double expansion) {
  StackSpec spec;
  spec.set_vocab_size(8);
  spec.set_width(width);
  spec.set_mlp_expansion(expansion);
  spec.set_mlp_token_shift(true);
  spec.add_mixers()->set_name("r");
  spec.mutable_mixers(0)->mutable_rwkv7()->set_num_heads(1);
  spec.mutable_mixers(0)->mutable_rwkv7()->set_gate_rank(3);
  spec.add_layers("r");
  return spec;
}

std::unique_ptr<WeightSource> WeightsOf(const StackSpec& spec) {
  ThreadPool pool(1);
  return InitializeWeights(spec, {}, pool);
}

TEST(RwkvCheckpoint, EveryMlpWidthIsExact) {
  // 480/88·88 and the others fall short of a whole number in double precision; 4 is what official models have.
  const std::pair<int, int> sizes[] = {{88, 480}, {104, 480}, {184, 416}, {200, 928}, {64, 256}, {33, 32}, {8, 1024}};
  for (const auto& [width, mlp_width] : sizes) {
    const StackSpec spec = PlainSpec(width, (mlp_width + 0.5) / width);
    ASSERT_EQ(MlpWidth(spec), mlp_width);
    ASSERT_TRUE(WriteRwkvCheckpoint(Path("width.pth"), spec, *WeightsOf(spec)).ok());
    const RwkvCheckpoint checkpoint = Read(OpenTorch(Path("width.pth")));
    EXPECT_EQ(MlpWidth(checkpoint.spec), mlp_width) << width;
    EXPECT_NEAR(checkpoint.spec.mlp_expansion(), static_cast<double>(mlp_width) / width, 1e-12);
    EXPECT_EQ(FormatStackSpec(CanonicalStack(checkpoint.spec)), FormatStackSpec(CanonicalStack(spec)));
  }
}

TEST(RwkvCheckpoint, WritesTiedHeads) {
  StackSpec spec = PlainSpec(32, 4);
  spec.set_tied_head(true);
  ASSERT_TRUE(WriteRwkvCheckpoint(Path("tied.pth"), spec, *WeightsOf(spec)).ok());
  const auto file = OpenTorch(Path("tied.pth"));
  EXPECT_EQ(ReadFloats(*file->Find("head.weight")), ReadFloats(*file->Find("emb.weight")));
}

std::string ReadError(std::shared_ptr<ChangedTensors> file) {
  const auto checkpoint = ReadRwkvCheckpoint(std::move(file));
  EXPECT_EQ(checkpoint.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(checkpoint.status().message());
}

TEST(ReadRwkvCheckpoint, ListsAllTensorsAtFault) {
  auto file = std::make_shared<ChangedTensors>(Data("x070_f32.pth"));
  file->Remove("blocks.1.att.k_k");
  file->Remove("ln_out.bias");
  file->Put("blocks.1.att.w1", DType::kF32, {32, 9});
  file->Put("blocks.0.att.x_r", DType::kF32, {32});
  file->Put("blocks.0.att.a0", DType::kI32, {1, 1, 32});
  file->Put("blocks.0.att.v0", DType::kF32, {1, 1, 32});
  file->Put("blocks.1.ffn.x_g", DType::kF32, {1, 1, 32});
  const std::string error = ReadError(file);
  EXPECT_THAT(error, ::testing::StartsWith("x.pth: no RWKV-7 (x070) checkpoint: "));
  for (const char* problem : {
           "blocks.1.att.k_k: missing, expected shape [1, 1, 32]",
           "ln_out.bias: missing, expected shape [32]",
           "blocks.1.att.w1: has shape [32, 9], expected [32, 8]",
           "blocks.0.att.x_r: has shape [32], expected [1, 1, 32]",
           "blocks.0.att.a0: has dtype I32, expected F32, BF16, F16 or F64",
           "blocks.0.att.v1: missing, expected shape [32, 4]",
           "blocks.1.ffn.x_g: unexpected",
       }) {
    EXPECT_THAT(error, HasSubstr(problem));
  }
  EXPECT_THAT(error, Not(HasSubstr("head.weight")));
}

TEST(ReadRwkvCheckpoint, ListsTensorsThatSizesComeFrom) {
  auto file = std::make_shared<ChangedTensors>(Data("x070_f32.pth"));
  file->Remove("blocks.0.att.r_k");
  file->Put("emb.weight", DType::kF32, {48});
  file->Put("blocks.0.att.g1", DType::kF32, {32, 0});
  file->Put("blocks.0.ffn.key.weight", DType::kF32, {100, 32});
  const std::string error = ReadError(file);
  EXPECT_THAT(error, HasSubstr("blocks.0.att.r_k: missing, expected shape [heads, head size]"));
  EXPECT_THAT(error, HasSubstr("emb.weight: has shape [48], expected [vocabulary, width]"));
  EXPECT_THAT(error, HasSubstr("blocks.0.att.g1: has shape [32, 0], expected [width, rank]"));
  EXPECT_THAT(error, HasSubstr("blocks.0.ffn.key.weight: makes an MLP 100 wide, expected a multiple of 32"));
}

TEST(ReadRwkvCheckpoint, NamesOtherFaults) {
  auto heads = std::make_shared<ChangedTensors>(Data("x070_f32.pth"));
  heads->Put("blocks.0.att.r_k", DType::kF32, {2, 17});
  EXPECT_THAT(ReadError(heads), HasSubstr("blocks.0.att.r_k: has 2 heads of 17, expected 32 channels together"));

  auto gap = std::make_shared<ChangedTensors>(Data("x070_f32.pth"));
  gap->Put("blocks.2147483647.ln1.weight", DType::kF32, {32});
  EXPECT_THAT(ReadError(gap), HasSubstr("blocks.2: missing, although there is blocks.2147483647"));

  auto old = std::make_shared<ChangedTensors>(Data("x070_f32.pth"));
  old->Remove("blocks.0.att.r_k");
  old->Put("blocks.0.att.time_faaaa", DType::kF32, {2, 16});
  EXPECT_THAT(ReadError(old),
              HasSubstr("x.pth: a checkpoint of RWKV before version 7 (it has blocks.0.att.time_faaaa)"));
}

TEST(HasRwkvNames, TellsThemFromOthers) {
  EXPECT_TRUE(HasRwkvNames(*OpenTorch(Data("x070_bf16.pth"))));
  EXPECT_FALSE(HasRwkvNames(*OpenTorch(Data("state_dict.pth"))));
  // One without its embedding is one, and lacks it.
  const auto file = std::make_shared<ChangedTensors>(Data("x070_f32.pth"));
  file->Remove("emb.weight");
  EXPECT_TRUE(HasRwkvNames(*file));
  EXPECT_THAT(ReadError(file), HasSubstr("emb.weight: missing, expected shape [vocabulary, width]"));
}

TEST(DescribeForeignNames, SaysWhatStandsBeforeThem) {
  const auto file = std::make_shared<ChangedTensors>(Data("x070_f32.pth"));
  const std::vector<std::string> names = file->Names();
  for (const std::string& name : names) file->Remove(name);
  EXPECT_EQ(DescribeForeignNames(*file), "it has no tensors");
  file->Put("a.myblocks.0.att.k", DType::kF32, {1});
  EXPECT_EQ(DescribeForeignNames(*file), "its tensors are not named as those of RWKV-7 (a.myblocks.0.att.k)");
  file->Put("_orig_mod.module.blocks.0.att.w1", DType::kF32, {1});
  EXPECT_FALSE(HasRwkvNames(*file));
  EXPECT_EQ(DescribeForeignNames(*file),
            "its tensors are named as those of RWKV-7, but with \"_orig_mod.module.\" before that "
            "(_orig_mod.module.blocks.0.att.w1); expected blocks.0.att.w1");
}

TEST(ReadRwkvCheckpoint, MessagesMayCallTensorsAsTheFileDoes) {
  const RwkvCheckpoint checkpoint = Read(OpenTorch(Data("x070_f32.pth")));
  EXPECT_EQ(checkpoint.weights->NameInFile("lm_head.weight"), "head.weight");
  EXPECT_EQ(checkpoint.weights->NameInFile("transformer.h.1.attn.w1.weight"), "blocks.1.att.w1");
}

TEST(WriteRwkvCheckpoint, ListsWhatCheckpointsCannotHold) {
  StackSpec spec = PlainSpec(32, 4);
  spec.mutable_mixers(0)->mutable_rwkv7()->set_token_shift(false);
  MixerSpec& attention = *spec.add_mixers();
  attention.set_name("a");
  attention.mutable_attention()->mutable_projections()->set_num_heads(2);
  attention.mutable_attention()->mutable_projections()->set_rotary_dim(0);
  spec.add_layers("a");
  spec.set_mlp_token_shift(false);
  spec.set_block_lambdas(true);
  spec.set_skip_connections(true);
  spec.set_residual_scale(0.5);
  spec.set_logit_softcap(30);
  const absl::Status status = WriteRwkvCheckpoint(Path("never.pth"), spec, *WeightsOf(spec));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* problem : {
           "never.pth: an official RWKV-7 checkpoint cannot hold this stack",
           "mixers[0].rwkv7.token_shift: got false, expected true",
           "mixers[1]: \"a\" is no RWKV-7 mixer",
           "layers: use 2 mixers, expected one in all layers",
           "mlp_token_shift: got false, expected true",
           "block_lambdas: got true, expected false",
           "skip_connections: got true, expected false",
           "residual_scale: got 0.5, expected 1",
           "logit_softcap: got 30, expected 0",
       }) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(problem));
  }
  EXPECT_EQ(TorchFile::Open(Path("never.pth")).status().code(), absl::StatusCode::kNotFound);
}

TEST(WriteRwkvCheckpoint, RefusesWeightsOfAnotherStack) {
  const absl::Status status = WriteRwkvCheckpoint(Path("never.pth"), PlainSpec(32, 4), *WeightsOf(PlainSpec(64, 4)));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has shape"));
}

}  // namespace
}  // namespace kvm
