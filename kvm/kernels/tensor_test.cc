#include "kvm/kernels/tensor.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "gtest/gtest.h"

namespace kvm {
namespace {

// Reads `elements` through a view whose data starts at an odd address.
template <typename T>
std::vector<float> ReadUnaligned(DType dtype, const std::vector<T>& elements) {
  std::vector<unsigned char> bytes(elements.size() * sizeof(T) + 1);
  std::memcpy(bytes.data() + 1, elements.data(), elements.size() * sizeof(T));
  return ReadFloats({dtype, {static_cast<int64_t>(elements.size())}, bytes.data() + 1});
}

TEST(TensorTest, IsZeroAndAligned) {
  for (int64_t n : {0, 1, 7, 1000}) {
    const Tensor tensor(DType::kF32, {n});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.bytes()) % 64, 0u);
    ASSERT_EQ(tensor.floats().size(), static_cast<size_t>(n));
    for (float x : tensor.floats()) EXPECT_EQ(x, 0.0f);
  }
}

TEST(TensorTest, ADefaultTensorIsEmpty) {
  const Tensor tensor;
  EXPECT_EQ(tensor.num_elements(), 0);
  EXPECT_EQ(tensor.byte_size(), 0);
  EXPECT_TRUE(tensor.floats().empty());
  EXPECT_EQ(tensor.Clone().num_elements(), 0);
}

TEST(TensorTest, AScalarHasOneElement) {
  const Tensor tensor = Tensor::FromFloats({}, {2.5f});
  EXPECT_EQ(tensor.num_elements(), 1);
  EXPECT_EQ(tensor.floats()[0], 2.5f);
  EXPECT_EQ(ToString(tensor.shape()), "[]");
}

TEST(TensorTest, ACloneHasItsOwnMemory) {
  Tensor original = Tensor::FromFloats({2, 2}, {1, 2, 3, 4});
  const Tensor clone = original.Clone();
  original.floats()[0] = 9;
  EXPECT_EQ(clone.shape(), (Shape{2, 2}));
  EXPECT_EQ(clone.floats()[0], 1.0f);
  EXPECT_EQ(clone.floats()[3], 4.0f);
}

TEST(TensorTest, AMoveKeepsTheMemoryWhereItIs) {
  Tensor source = Tensor::FromInts({3}, {5, 6, 7});
  const void* bytes = source.bytes();
  const Tensor target = std::move(source);
  EXPECT_EQ(target.bytes(), bytes);
  EXPECT_EQ(target.ints()[2], 7);
  EXPECT_EQ(target.byte_size(), 24);
}

TEST(TensorTest, ShapesPrintAsLists) {
  EXPECT_EQ(ToString(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ(NumElements(Shape{2, 0, 3}), 0);
}

TEST(ReadFloatsTest, ReadsUnalignedElementsOfEveryType) {
  EXPECT_EQ(ReadUnaligned<float>(DType::kF32, {1.5f, -2}), (std::vector<float>{1.5f, -2}));
  EXPECT_EQ(ReadUnaligned<double>(DType::kF64, {0.1, -4}), (std::vector<float>{0.1f, -4}));
  EXPECT_EQ(ReadUnaligned<uint16_t>(DType::kBF16, {0x3f80, 0xc040}), (std::vector<float>{1, -3}));
  EXPECT_EQ(ReadUnaligned<uint8_t>(DType::kU8, {0, 255}), (std::vector<float>{0, 255}));
  EXPECT_EQ(ReadUnaligned<uint8_t>(DType::kBool, {0, 1}), (std::vector<float>{0, 1}));
  EXPECT_EQ(ReadUnaligned<int8_t>(DType::kI8, {-128, 127}), (std::vector<float>{-128, 127}));
  EXPECT_EQ(ReadUnaligned<int16_t>(DType::kI16, {-32768, 5}), (std::vector<float>{-32768, 5}));
  EXPECT_EQ(ReadUnaligned<uint16_t>(DType::kU16, {65535, 5}), (std::vector<float>{65535, 5}));
  EXPECT_EQ(ReadUnaligned<int32_t>(DType::kI32, {-7, 1 << 24}), (std::vector<float>{-7, 16777216}));
  EXPECT_EQ(ReadUnaligned<uint32_t>(DType::kU32, {1u << 31}), (std::vector<float>{2147483648.0f}));
  EXPECT_EQ(ReadUnaligned<int64_t>(DType::kI64, {-3}), (std::vector<float>{-3}));
  EXPECT_EQ(ReadUnaligned<uint64_t>(DType::kU64, {uint64_t{1} << 63}), (std::vector<float>{9223372036854775808.0f}));
}

TEST(ReadFloatsTest, HalvesKeepSubnormalsSignsAndInfinities) {
  const std::vector<float> got = ReadUnaligned<uint16_t>(
      DType::kF16, {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c00, 0x3555, 0x7bff, 0x7c00, 0xfc00, 0x7e00});
  EXPECT_EQ(got[0], 0.0f);
  EXPECT_FALSE(std::signbit(got[0]));
  EXPECT_EQ(got[1], 0.0f);
  EXPECT_TRUE(std::signbit(got[1]));
  EXPECT_EQ(got[2], 0x1p-24f);
  EXPECT_EQ(got[3], -0x3ffp-24f);
  EXPECT_EQ(got[4], 0x1p-14f);
  EXPECT_EQ(got[5], 1.0f);
  EXPECT_EQ(got[6], 0x1.554p-2f);
  EXPECT_EQ(got[7], 65504.0f);
  EXPECT_EQ(got[8], std::numeric_limits<float>::infinity());
  EXPECT_EQ(got[9], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(got[10]));
}

}  // namespace
}  // namespace kvm
