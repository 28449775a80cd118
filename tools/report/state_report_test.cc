#include "tools/report/state_report.h"

#include <string>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Three layers of width 32 of which two grow.
StackSpec Stack(const std::string& budget) {
  const absl::StatusOr<StackSpec> spec = ParseStackSpec(
      R"(width: 32 mlp_token_shift: true
         mixers { name: "r" rwkv7 { num_heads: 2 } }
         mixers {
           name: "k"
           kvm {
             projections { num_heads: 2 rotary_dim: 8 }
             chunk_len: 16 gate_keys: false gate_values: false budget { )" +
          budget + R"( } } }
         layers: ["r", "k", "k"])",
      "stack");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

constexpr char kSaturation[] = "growth: SATURATION limit: 1024 max_chunks: 100 ";

// Of the KVM layer: M rows of sums [16 + 16 + 1] and readout values [16] for two heads; their readout keys [16] in
// panels of 16; a window of 32 positions.
constexpr int64_t KvmBytes(int64_t rows) { return 4 * 2 * (rows * 49 + (rows + 15) / 16 * 16 * 16 + 32 * 32); }
// 2 matrices [16, 16] and the last input.
constexpr int64_t kRwkv7Bytes = 4 * (2 * 16 * 16 + 32);
// Last inputs of three MLPs and of RWKV-7's value anchor.
constexpr int64_t kShiftBytes = 4 * (3 + 1) * 32;

TEST(StateReport, JsonHasRowsAndBytesOfEachMixer) {
  const nlohmann::json growth = StateGrowthToJson(Stack(kSaturation), DType::kF32);
  ASSERT_EQ(growth["mixers"].size(), 2u);
  const nlohmann::json& rwkv7 = growth["mixers"][0];
  EXPECT_EQ(rwkv7["name"], "r");
  EXPECT_EQ(rwkv7["layers"], 1);
  ASSERT_EQ(rwkv7["sizes"].size(), 6u);
  EXPECT_EQ(rwkv7["sizes"][5]["context"], 1024 * 1024);
  EXPECT_EQ(rwkv7["sizes"][5]["rows"], 0);
  EXPECT_EQ(rwkv7["sizes"][5]["bytes"], kRwkv7Bytes);

  const nlohmann::json& kvm = growth["mixers"][1];
  EXPECT_EQ(kvm["layers"], 2);
  EXPECT_EQ(kvm["upper_bound"], false);
  // The last update before 1024 tokens sees 1008 of them: floor(1024 · 1008 / 2032); before 1M, 1048560.
  EXPECT_EQ(kvm["sizes"][0]["rows"], 507);
  EXPECT_EQ(kvm["sizes"][5]["rows"], 1023);
  EXPECT_EQ(kvm["sizes"][0]["layer_bytes"], KvmBytes(507));
  EXPECT_EQ(kvm["sizes"][5]["bytes"], 2 * KvmBytes(1023));
  EXPECT_EQ(growth["shift_history_bytes"], kShiftBytes);
}

TEST(StateReport, MixersAndShiftHistoriesAddUpToTheSequence) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    const StackSpec spec = Stack(kSaturation);
    const nlohmann::json growth = StateGrowthToJson(spec, dtype), sizes = StateSizesToJson(spec, dtype);
    ASSERT_EQ(sizes.size(), 6u);
    for (size_t i = 0; i < sizes.size(); ++i) {
      int64_t sum = growth["shift_history_bytes"];
      for (const nlohmann::json& mixer : growth["mixers"]) sum += mixer["sizes"][i]["bytes"].get<int64_t>();
      EXPECT_EQ(sizes[i]["state_bytes"], sum);
    }
  }
}

TEST(StateReport, TableHasALineForEachMixer) {
  const std::string table = StateGrowthTable(Stack("min_rows: 16"), DType::kF32);
  EXPECT_EQ(table,
            "mixer by mixer                 1K        4K       16K       64K      256K        1M\n"
            "rows of one layer\n"
            "  r                             -         -         -         -         -         -\n"
            "  k                            16        16        16        16        16        16\n"
            "bytes of one layer\n"
            "  r                       2.1 KiB   2.1 KiB   2.1 KiB   2.1 KiB   2.1 KiB   2.1 KiB\n"
            "  k                      16.1 KiB  16.1 KiB  16.1 KiB  16.1 KiB  16.1 KiB  16.1 KiB\n"
            "bytes of all its layers\n"
            "  r x 1                   2.1 KiB   2.1 KiB   2.1 KiB   2.1 KiB   2.1 KiB   2.1 KiB\n"
            "  k x 2                  32.2 KiB  32.2 KiB  32.2 KiB  32.2 KiB  32.2 KiB  32.2 KiB\n"
            "  other shift histories     512 B     512 B     512 B     512 B     512 B     512 B\n");
}

TEST(StateReport, NoRowsWithoutMixersThatHaveThem) {
  StackSpec spec = Stack(kSaturation);
  spec.mutable_mixers()->RemoveLast();
  spec.clear_layers();
  spec.add_layers("r");
  const std::string table = StateGrowthTable(spec, DType::kF32);
  EXPECT_THAT(table, Not(HasSubstr("rows of one layer")));
  EXPECT_THAT(table, HasSubstr("bytes of one layer\n  r "));
}

TEST(StateReport, AdaptiveBudgetsAreUpperBounds) {
  const StackSpec adaptive = Stack(std::string(kSaturation) + "append_below: 10");
  const std::string growth = StateGrowthTable(adaptive, DType::kF32);
  EXPECT_THAT(growth, HasSubstr(" <=507 "));
  EXPECT_THAT(growth, HasSubstr(" <=266.1 KiB "));
  EXPECT_THAT(growth, Not(HasSubstr("<=2.1 KiB")));  // RWKV-7's is exact
  EXPECT_THAT(StateSizeTable(adaptive, DType::kF32), HasSubstr("<=: at most"));
  EXPECT_THAT(StateSizeTable(Stack(kSaturation), DType::kF32), Not(HasSubstr("<=")));
  const nlohmann::json json = StateGrowthToJson(adaptive, DType::kF32);
  EXPECT_EQ(json["mixers"][0]["upper_bound"], false);
  EXPECT_EQ(json["mixers"][1]["upper_bound"], true);
  EXPECT_EQ(StateSizesToJson(adaptive, DType::kF32)[0]["upper_bound"], true);
}

}  // namespace
}  // namespace kvm
