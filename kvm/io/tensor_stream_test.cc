#include "kvm/io/tensors/tensor_stream.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/tensors/packed_file.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/io/tensors/weight_files.h"
#include "kvm/io/torch/rwkv_checkpoint.h"
#include "kvm/io/torch/torch_file.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/weights/weight_source.h"
#include "testing/allocation_peak.h"
#include "testing/conformance/random_weights.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMatrix = 512;  // F32: 1 MiB

// A stack that an RWKV-7 checkpoint can hold.
StackSpec Spec() {
  StackSpec spec;
  spec.set_vocab_size(kMatrix);
  spec.set_width(kMatrix);
  spec.set_mlp_expansion(1);
  spec.set_mlp_token_shift(true);
  MixerSpec& mixer = *spec.add_mixers();
  mixer.set_name("r");
  mixer.mutable_rwkv7()->set_num_heads(8);
  for (int i = 0; i < 3; ++i) spec.add_layers("r");
  return spec;
}

class TensorStreamTest : public ::testing::Test {
 protected:
  TensorStreamTest() : spec_(Spec()), weights_(RandomWeights(spec_, 1)) {
    folder_ = fs::path(::testing::TempDir()) / "tensor_stream";
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }

  // Every writer of a model's tensors.
  std::vector<std::function<absl::Status(const TensorWriting&)>> Writers() {
    const std::string path = (folder_ / "m").string();
    return {
        [=](const TensorWriting& writing) { return WritePackedModel(path, spec_, *weights_, {}, writing); },
        [=](const TensorWriting& writing) { return WriteRwkvCheckpoint(path, spec_, *weights_, writing); },
        [=](const TensorWriting& writing) { return WriteWeightFile(path, weights_->Names(), *weights_, writing); },
    };
  }

  StackSpec spec_;
  std::unique_ptr<WeightSource> weights_;
  fs::path folder_;
};

TEST_F(TensorStreamTest, WritersStopWheneverTheyAreToldAndLeaveNothing) {
  for (const auto& write : Writers()) {
    int asked = 0;
    ASSERT_TRUE(write({std::nullopt,
                       [&] {
                         ++asked;
                         return false;
                       }})
                    .ok());
    fs::remove(folder_ / "m");
    // At least once for every tensor.
    EXPECT_GE(asked, static_cast<int>(weights_->Names().size()) - 3);
    for (int stop = 1; stop <= asked; stop += 17) {
      int left = stop;
      const absl::Status status = write({DType::kBF16, [&] { return --left == 0; }});
      EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << stop << " of " << asked << ": " << status;
      EXPECT_TRUE(fs::is_empty(folder_)) << stop;
    }
  }
}

TEST_F(TensorStreamTest, WritersHoldOneTensorAtATime) {
  constexpr size_t kTensor = kMatrix * kMatrix * sizeof(float);
  for (const auto& write : Writers()) {
    absl::Status status;
    const size_t peak = AllocationPeak([&] { status = write({DType::kF16, {}}); });
    EXPECT_TRUE(status.ok()) << status;
    // Its float32 form, the converted one, a packed or transposed copy, and names.
    EXPECT_LT(peak, 4 * kTensor) << fs::file_size(folder_ / "m");
    EXPECT_GT(fs::file_size(folder_ / "m"), 8 * kTensor);
  }
}

TEST_F(TensorStreamTest, PackedModelsAreReadOneTensorAtATime) {
  const std::string path = (folder_ / "m").string();
  ASSERT_TRUE(WritePackedModel(path, spec_, *weights_, {}).ok());
  const absl::StatusOr<PackedModel> model = OpenPackedModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  absl::Status status;
  const size_t peak = AllocationPeak([&] { status = model->weights->CheckContents({}); });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_LT(peak, 3 * kMatrix * kMatrix * sizeof(float));
}

TEST_F(TensorStreamTest, ConvertedOnTheWayIsTheSameAsBefore) {
  const std::vector<float> values = {1, -2.5, 3e-5f};
  const Tensor tensor = Tensor::FromFloats({3}, values);
  const Tensor half = [] {
    Tensor half(DType::kF16, {3});
    const uint16_t bits[] = {0x3c00, 0xc100, 0x01f7};
    std::copy_n(bits, 3, static_cast<uint16_t*>(half.bytes()));
    return half;
  }();
  class One : public WeightSource {
   public:
    explicit One(TensorView view) : view_(std::move(view)) {}
    std::string Description() const override { return "one"; }
    std::vector<std::string> Names() const override { return {"w"}; }
    const TensorView* Find(absl::string_view) const override { return &view_; }

   private:
    TensorView view_;
  };
  const std::string streamed = (folder_ / "a").string(), whole = (folder_ / "b").string();
  ASSERT_TRUE(WriteWeightFile(streamed, {"w"}, One(tensor.view()), {DType::kF16, {}}).ok());
  ASSERT_TRUE(WriteSafetensors(whole, {{"w", half.view()}}, {{"format", "pt"}}).ok());
  EXPECT_EQ(*ReadFile(streamed), *ReadFile(whole));

  const absl::Status refused =
      WriteWeightFile(streamed, {"w"}, One(Tensor::FromFloats({1}, {1e9f}).view()), {DType::kF16, {}});
  EXPECT_EQ(refused.message(), "one: w: 1e+09 does not fit F16");
  EXPECT_EQ(*ReadFile(streamed), *ReadFile(whole));
}

}  // namespace
}  // namespace kvm
