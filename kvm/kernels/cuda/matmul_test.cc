#include "kvm/kernels/cuda/matmul.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kvm/kernels/cuda/device.h"

namespace kvm::cuda {
namespace {

TEST(Cublas, WithoutADeviceIsAnError) {
  if (RequireDevice().ok()) GTEST_SKIP() << "there is a GPU";
  const absl::Status status = Cublas::Create().status();
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.message().substr(0, 16), "starting cuBLAS:") << status;
}

TEST(MatMulArguments, RefusesShapesThatDoNotFit) {
  const MatrixView<const float> x(nullptr, 2, 3);
  const MatrixView<const float> w(nullptr, 4, 3);
  const absl::Status inner =
      MatMul(nullptr, x, MatrixView<const float>(nullptr, 4, 5), MatrixView<float>(nullptr, 2, 4), nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(inner)) << inner;
  EXPECT_NE(inner.message().find("x [2, 3] times w [4, 5]"), absl::string_view::npos) << inner;
  EXPECT_TRUE(absl::IsInvalidArgument(MatMul(nullptr, x, w, MatrixView<float>(nullptr, 2, 5), nullptr)));
  EXPECT_TRUE(absl::IsInvalidArgument(MatMul(nullptr, x, w, MatrixView<float>(nullptr, 2, 4, 3), nullptr)));
  EXPECT_TRUE(absl::IsInvalidArgument(MatMul(nullptr, MatrixView<const float>(nullptr, 2, 0),
                                             MatrixView<const float>(nullptr, 4, 0), MatrixView<float>(nullptr, 2, 4),
                                             nullptr)));
  const int64_t too_many = int64_t{std::numeric_limits<int>::max()} + 1;
  EXPECT_TRUE(absl::IsInvalidArgument(MatMul(nullptr, MatrixView<const float>(nullptr, too_many, 3), w,
                                             MatrixView<float>(nullptr, too_many, 4), nullptr)));
}

TEST(MatMulArguments, RefusesNullAddresses) {
  float memory[12] = {};
  const auto product = [](float* x, float* w, float* out) {
    return MatMul(nullptr, MatrixView<const float>(x, 2, 3), MatrixView<const float>(w, 4, 3),
                  MatrixView<float>(out, 2, 4), nullptr);
  };
  EXPECT_TRUE(absl::IsInvalidArgument(product(nullptr, memory, memory)));
  EXPECT_TRUE(absl::IsInvalidArgument(product(memory, nullptr, memory)));
  EXPECT_TRUE(absl::IsInvalidArgument(product(memory, memory, nullptr)));
}

TEST(MatMulArguments, NoRowsAreNoWork) {
  EXPECT_EQ(MatMul(nullptr, MatrixView<const float>(nullptr, 0, 3), MatrixView<const float>(nullptr, 4, 3),
                   MatrixView<float>(nullptr, 0, 4), nullptr),
            absl::OkStatus());
}

// Fractions of small integers: every product and sum below is exact in float32, in whatever order it is taken.
std::vector<float> Eighths(int64_t count, std::mt19937& random) {
  std::uniform_int_distribution<int> integer(-16, 16);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(integer(random)) / 8;
  return values;
}

class MatMulTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (absl::Status device = RequireDevice(); !device.ok()) GTEST_SKIP() << device;
    auto stream = Stream::Create();
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = std::make_unique<Stream>(std::move(*stream));
    auto cublas = Cublas::Create();
    ASSERT_TRUE(cublas.ok()) << cublas.status();
    cublas_ = std::make_unique<Cublas>(std::move(*cublas));
  }

  // x [n, inputs + gap] times w [outputs, inputs + gap] into [n, outputs + gap], whose gaps keep `untouched`.
  std::vector<float> Run(const std::vector<float>& x, const std::vector<float>& w, int64_t n, int64_t inputs,
                         int64_t outputs, int64_t gap, float untouched) {
    std::vector<float> out(static_cast<size_t>(n * (outputs + gap)), untouched);
    auto device_x = DeviceBuffer::CopyOf(x, stream_->get());
    auto device_w = DeviceBuffer::CopyOf(w, stream_->get());
    auto device_out = DeviceBuffer::CopyOf(out, stream_->get());
    EXPECT_TRUE(device_x.ok() && device_w.ok() && device_out.ok());
    EXPECT_EQ(MatMul(cublas_->get(), MatrixView<const float>(device_x->floats(), n, inputs, inputs + gap),
                     MatrixView<const float>(device_w->floats(), outputs, inputs, inputs + gap),
                     MatrixView<float>(device_out->floats(), n, outputs, outputs + gap), stream_->get()),
              absl::OkStatus());
    EXPECT_EQ(device_out->Read(absl::MakeSpan(out), stream_->get()), absl::OkStatus());
    return out;
  }

  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Cublas> cublas_;
};

TEST_F(MatMulTest, EqualsTheExactProduct) {
  struct Case {
    int64_t n, inputs, outputs, gap;
  };
  constexpr float kUntouched = -77;
  std::mt19937 random(1);
  for (const Case& c :
       {Case{1, 1, 1, 0}, Case{1, 257, 3, 0}, Case{3, 64, 65, 0}, Case{33, 127, 31, 2}, Case{130, 512, 96, 5}}) {
    const std::vector<float> x = Eighths(c.n * (c.inputs + c.gap), random);
    const std::vector<float> w = Eighths(c.outputs * (c.inputs + c.gap), random);
    const std::vector<float> out = Run(x, w, c.n, c.inputs, c.outputs, c.gap, kUntouched);
    for (int64_t r = 0; r < c.n; ++r) {
      for (int64_t o = 0; o < c.outputs + c.gap; ++o) {
        double sum = 0;
        for (int64_t i = 0; i < c.inputs && o < c.outputs; ++i) {
          sum += static_cast<double>(x[static_cast<size_t>(r * (c.inputs + c.gap) + i)]) *
                 static_cast<double>(w[static_cast<size_t>(o * (c.inputs + c.gap) + i)]);
        }
        ASSERT_EQ(out[static_cast<size_t>(r * (c.outputs + c.gap) + o)], o < c.outputs ? sum : double{kUntouched})
            << "row " << r << ", output " << o << " of n " << c.n << ", inputs " << c.inputs;
      }
    }
  }
}

// TF32 keeps 10 bits of a fraction and would drop the last of these 20.
TEST_F(MatMulTest, KeepsAllBitsOfFloat32) {
  constexpr int64_t kSize = 64;
  std::vector<float> x(kSize * kSize, 1 + 0x1p-20f);
  std::vector<float> identity(kSize * kSize, 0);
  for (size_t i = 0; i < kSize; ++i) identity[i * kSize + i] = 1;
  EXPECT_EQ(Run(x, identity, kSize, kSize, kSize, 0, 0), x);
}

}  // namespace
}  // namespace kvm::cuda
