#include "tools/report/stack_report.h"

#include <string>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

// The line that describes a mixer of width 64.
std::string Described(const std::string& mixer) {
  const absl::StatusOr<StackSpec> spec =
      ParseStackSpec("width: 64 layers: \"m\" mixers { name: \"m\" " + mixer + " }", mixer);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? DescribeStack(*spec) : "";
}

TEST(DescribeStack, NamesEveryKindOfMixer) {
  const std::string heads = "projections { num_heads: 2 rotary_dim: 8 } ";
  EXPECT_THAT(Described("rwkv7 { num_heads: 2 }"), HasSubstr("  m: RWKV-7, 2 heads of 32; layers 0\n"));
  EXPECT_THAT(Described("attention { " + heads + "}"), HasSubstr("full attention, 2 heads of 32, rotary 8;"));
  EXPECT_THAT(Described("attention { window: 5 " + heads + "}"),
              HasSubstr("attention over 5 tokens, 2 heads of 32, rotary 8;"));
  EXPECT_THAT(Described("block_window { chunk_len: 16 " + heads + "}"),
              HasSubstr("block window, 2 heads of 32, rotary 8, window 2 chunks of 16, 1 sink;"));
  EXPECT_THAT(Described("block_window { num_sinks: 0 " + heads + "}"), HasSubstr(", 0 sinks;"));
  EXPECT_THAT(Described("ovq { delta_rule: true " + heads + "}"),
              HasSubstr("OVQ, 2 heads of 32, chunks of 128, up to 2,048 centroids, delta rule;"));
  EXPECT_THAT(Described("gated_delta_net { num_heads: 2 num_value_heads: 4 qk_head_dim: 24 }"),
              HasSubstr("Gated DeltaNet, 2 heads of 24/48, 4 value heads, convolution 4;"));
  EXPECT_THAT(Described("kimi_delta { num_heads: 2 convolution { enabled: false } }"),
              HasSubstr("Kimi Delta Attention, 2 heads of 32;"));
}

TEST(DescribeStack, SaysWhatAKvmBudgetIs) {
  const std::string heads = "projections { num_heads: 2 rotary_dim: 8 } chunk_len: 16 ";
  EXPECT_THAT(Described("kvm { " + heads + "}"),
              HasSubstr("KVM, 2 heads of 32, rotary 8, window 2 chunks of 16, rows of one chunk;"));
  EXPECT_THAT(Described("kvm { " + heads + "budget { growth: POWER_LAW factor: 2 append_below: 7.5 } }"),
              HasSubstr(", at most 2*context^0.5 rows, appending below 7.5;"));
  // 2 * 48^0.5 rows at the first update.
  EXPECT_THAT(Described("kvm { " + heads + "budget { growth: POWER_LAW factor: 2 min_rows: 14 } }"),
              HasSubstr(", 2*context^0.5 rows, at least 14;"));
  EXPECT_THAT(Described("kvm { " + heads + "budget { growth: POWER_LAW factor: 2 min_rows: 13 } }"),
              HasSubstr(", 2*context^0.5 rows;"));
  EXPECT_THAT(Described("kvm { " + heads +
                        "head_budgets { min_rows: 16 } head_budgets { growth: SATURATION limit: 9 } "
                        "second_merge: 0.5 merge_decay: 0.25 separate_rotary: true }"),
              HasSubstr(", head by head 16 rows | rows saturating at 9, second merge 0.5, merge decay 0.25, separate "
                        "rotary;"));
}

}  // namespace
}  // namespace kvm
