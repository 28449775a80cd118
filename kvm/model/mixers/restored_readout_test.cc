#include "kvm/model/mixers/restored_readout.h"

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/kernels/cpu/slot_update.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/slot_rows.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/state/slot_memory.h"
#include "kvm/state/state_fields.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kKeyDim = 8, kValueDim = 6, kRows = 37;  // panels of 16, the last one in part

std::vector<float> Random(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = normal(random);
  return values;
}

ReadoutRule Rule(ValueReadout value) {
  ReadoutRule rule = {std::vector<float>(kKeyDim, 1.1f), std::vector<float>(kKeyDim, 0.1f), value};
  rule.norm_weight[3] = -0.7f;
  return rule;
}

// Rows that tokens founded and others were merged into.
SlotMemory Honest(const ReadoutRule& rule, DType dtype) {
  const std::vector<float> keys = Random(2 * kRows * kKeyDim, 1), values = Random(2 * kRows * kValueDim, 2);
  SlotMemory memory(kKeyDim, kValueDim, dtype);
  SlotRows rows = memory.Reserve(kRows);
  SlotTokens tokens = {{keys.data(), kRows, kKeyDim}, {values.data(), kRows, kValueDim}, {}, {}};
  SeedRows(tokens, false, rule.norm(), rule.value, rows);
  memory.Commit(rows);
  tokens.keys = {keys.data() + kRows * kKeyDim, kRows, kKeyDim};
  tokens.values = {values.data() + kRows * kValueDim, kRows, kValueDim};
  SlotUpdateOptions options;
  options.readout = rule.value;
  SlotUpdateHead head = {tokens, options, rule.norm(), memory.Reserve(0)};
  ThreadPool pool(1);
  ApplyRoutes({&head, 1}, RouteTokens({&head, 1}, pool.memory(), pool), pool);
  memory.Commit(head.rows);
  return memory;
}

// All that a memory consists of.
std::string BytesOf(const SlotMemory& memory) {
  StateFields fields;
  memory.Save(StateWriter(&fields));
  std::string bytes;
  for (const StateTensor& tensor : fields.tensors) {
    bytes.append(static_cast<const char*>(tensor.view.data), static_cast<size_t>(tensor.view.byte_size()));
  }
  return bytes;
}

struct Case {
  DType dtype;
  ValueReadout value;
};

class RestoredReadoutTest : public ::testing::TestWithParam<Case> {};

TEST_P(RestoredReadoutTest, HonestRowsKeepEveryBit) {
  const ReadoutRule rule = Rule(GetParam().value);
  SlotMemory memory = Honest(rule, GetParam().dtype);
  const std::string before = BytesOf(memory);
  SlotRows rows = memory.Reserve(0);
  const absl::StatusOr<int64_t> replaced = CorrectReadout(rule, rows);
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  EXPECT_EQ(*replaced, 0);
  EXPECT_EQ(BytesOf(memory), before);
}

TEST_P(RestoredReadoutTest, ForgedRowsBecomeThoseOfTheirSums) {
  const ReadoutRule rule = Rule(GetParam().value);
  const DType dtype = GetParam().dtype;
  SlotMemory memory = Honest(rule, dtype);
  const std::string honest = BytesOf(memory);
  SlotRows rows = memory.Reserve(0);
  const int64_t size = SizeOf(dtype);
  // One element of the last row's key, all of a row's value, and of integers a scale.
  static_cast<char*>(rows.readout_keys)[(KeyPanelOffset(kRows - 1, 5, kKeyDim) + 1) * size - 1] ^= 0x41;
  std::memset(static_cast<char*>(rows.readout_values) + 20 * kValueDim * size, 0x3b, kValueDim * size);
  int64_t forged = 2;
  if (dtype == DType::kI8) {
    rows.readout_key_scales[2] *= 1.5f;
    forged = 3;
  }
  EXPECT_NE(BytesOf(memory), honest);
  const absl::StatusOr<int64_t> replaced = CorrectReadout(rule, rows);
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  EXPECT_EQ(*replaced, forged);
  EXPECT_EQ(BytesOf(memory), honest);
}

TEST_P(RestoredReadoutTest, RowsThatNobodyCanReadAreRefused) {
  const ReadoutRule rule = Rule(GetParam().value);
  SlotMemory memory = Honest(rule, GetParam().dtype);
  SlotRows rows = memory.Reserve(0);
  const float radius = rows.radii[18];
  rows.radii[18] = -1;
  EXPECT_THAT(std::string(CorrectReadout(rule, rows).status().message()), HasSubstr("row 18: its radius is -1"));
  rows.radii[18] = radius;
  for (int64_t c = 0; c < kKeyDim; ++c) rows.key_sums[33 * kKeyDim + c] = (c % 2 == 0 ? 3e38f : -3e38f);
  EXPECT_THAT(std::string(CorrectReadout(rule, rows).status().message()),
              HasSubstr("row 33: its sums are too large to be read"));
}

INSTANTIATE_TEST_SUITE_P(
    All, RestoredReadoutTest,
    ::testing::Values(Case{DType::kF32, ValueReadout::kRadius}, Case{DType::kF32, ValueReadout::kMean},
                      Case{DType::kBF16, ValueReadout::kRadius}, Case{DType::kBF16, ValueReadout::kMean},
                      Case{DType::kI8, ValueReadout::kRadius}, Case{DType::kI8, ValueReadout::kMean}));

}  // namespace
}  // namespace kvm
