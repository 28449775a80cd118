#include "kvm/kernels/cuda/device.h"

#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace kvm::cuda {
namespace {

TEST(ToStatus, SuccessIsOk) { EXPECT_TRUE(ToStatus(cudaSuccess, "copying").ok()); }

TEST(ToStatus, TellsMemoryDeviceArgumentAndOtherErrorsApart) {
  EXPECT_TRUE(absl::IsResourceExhausted(ToStatus(cudaErrorMemoryAllocation, "allocating")));
  EXPECT_TRUE(absl::IsFailedPrecondition(ToStatus(cudaErrorNoDevice, "looking")));
  EXPECT_TRUE(absl::IsFailedPrecondition(ToStatus(cudaErrorInsufficientDriver, "looking")));
  EXPECT_TRUE(absl::IsInvalidArgument(ToStatus(cudaErrorInvalidConfiguration, "launching")));
  EXPECT_TRUE(absl::IsInternal(ToStatus(cudaErrorIllegalAddress, "launching")));
}

TEST(ToStatus, NamesTheActionAndTheError) {
  const absl::Status status = ToStatus(cudaErrorMemoryAllocation, "allocating 7 bytes");
  EXPECT_EQ(status.message().substr(0, 47), "allocating 7 bytes: cudaErrorMemoryAllocation, ");
}

TEST(DeviceBuffer, RefusesNegativeSizes) { EXPECT_TRUE(absl::IsInvalidArgument(DeviceBuffer::Allocate(-1).status())); }

TEST(DeviceBuffer, OfZeroBytesNeedsNoDevice) {
  const auto buffer = DeviceBuffer::Allocate(0);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->byte_size(), 0);
  EXPECT_EQ(buffer->floats(), nullptr);
}

TEST(DeviceBuffer, ReadingPastItsEndIsRefused) {
  const auto buffer = DeviceBuffer::Allocate(0);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  std::vector<float> host(1);
  EXPECT_TRUE(absl::IsInvalidArgument(buffer->Read(absl::MakeSpan(host), nullptr)));
}

// Whatever stands in the way of it, memory that cannot be had is an error and no crash.
TEST(DeviceBuffer, ImpossibleSizesAreAnError) {
  const absl::Status status = DeviceBuffer::Allocate(std::numeric_limits<int64_t>::max()).status();
  EXPECT_TRUE(RequireDevice().ok() ? absl::IsResourceExhausted(status) : absl::IsFailedPrecondition(status)) << status;
}

TEST(Device, WithoutOneEveryEntryPointSaysSo) {
  const absl::Status device = RequireDevice();
  if (device.ok()) GTEST_SKIP() << "there is a GPU";
  EXPECT_TRUE(absl::IsFailedPrecondition(device)) << device;
  EXPECT_TRUE(absl::IsFailedPrecondition(Stream::Create().status()));
}

TEST(DeviceBuffer, CopiesThereAndBack) {
  if (absl::Status device = RequireDevice(); !device.ok()) GTEST_SKIP() << device;
  auto stream = Stream::Create();
  ASSERT_TRUE(stream.ok()) << stream.status();
  const std::vector<float> values = {1, -2.5f, 3e38f};
  const auto buffer = DeviceBuffer::CopyOf(values, stream->get());
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  std::vector<float> back(values.size());
  ASSERT_TRUE(buffer->Read(absl::MakeSpan(back), stream->get()).ok());
  EXPECT_EQ(back, values);
  EXPECT_TRUE(stream->Synchronize().ok());
}

}  // namespace
}  // namespace kvm::cuda
