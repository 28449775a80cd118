#include "tools/report/demo_picture.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

TEST(DemoPictureTest, ShowsMeasuredPointsAndTheEndsAtAMillionTokens) {
  const StackSpec spec =
      ParseStackSpec(R"(mixers { name: "r" rwkv7 { num_heads: 12 } } layers: ["r"])", "test").value();
  const std::string svg = DrawDemoPicture(
      spec, DType::kF32, {{512, 0, 1 << 20, 3 << 20, 100, 0.01}, {1024, 0, 1 << 20, 6 << 20, 100, 0.01}});
  size_t markers = 0;
  for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++markers;
  EXPECT_EQ(markers, 4u);
  EXPECT_THAT(svg, HasSubstr("1 layers of width 768"));
  // 2 x 768 channels x 4 bytes x 2^20 tokens.
  EXPECT_THAT(svg, HasSubstr(">6.0 GiB</text>"));
  for (const char* tick : {">512<", ">1K<", ">1M<", ">1 MiB<"}) EXPECT_THAT(svg, HasSubstr(tick));
}

}  // namespace
}  // namespace kvm
