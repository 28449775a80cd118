#include "kvm/kernels/dtype.h"

#include "gtest/gtest.h"

namespace kvm {
namespace {

struct Case {
  DType dtype;
  const char* name;
  int64_t size;
};

constexpr Case kCases[] = {
    {DType::kBool, "BOOL", 1}, {DType::kU8, "U8", 1},   {DType::kI8, "I8", 1},     {DType::kI16, "I16", 2},
    {DType::kU16, "U16", 2},   {DType::kF16, "F16", 2}, {DType::kBF16, "BF16", 2}, {DType::kI32, "I32", 4},
    {DType::kU32, "U32", 4},   {DType::kF32, "F32", 4}, {DType::kF64, "F64", 8},   {DType::kI64, "I64", 8},
    {DType::kU64, "U64", 8},
};

TEST(DTypeTest, NamesAndSizesAreThoseOfSafetensors) {
  for (const Case& c : kCases) {
    EXPECT_EQ(Name(c.dtype), c.name);
    EXPECT_EQ(SizeOf(c.dtype), c.size) << c.name;
    DType parsed = c.dtype == DType::kBool ? DType::kU8 : DType::kBool;
    EXPECT_TRUE(ParseDType(c.name, &parsed)) << c.name;
    EXPECT_EQ(parsed, c.dtype) << c.name;
  }
}

TEST(DTypeTest, UnknownNamesAreRefusedAndLeaveTheOutputAlone) {
  DType parsed = DType::kI16;
  for (const char* name : {"", "f32", "F3", "F320", "F8_E4M3"}) {
    EXPECT_FALSE(ParseDType(name, &parsed)) << name;
    EXPECT_EQ(parsed, DType::kI16);
  }
}

}  // namespace
}  // namespace kvm
