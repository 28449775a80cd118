#include "kvm/kernels/cpu/pointwise/token_shift.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/vectors/every_target.h"
#include "kvm/kernels/reference/token_shift.h"

namespace kvm {
namespace {

std::vector<float> Random(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values) v = normal(generator);
  return values;
}

TEST(TokenShiftTest, AgreesWithReferenceOnEveryTarget) {
  constexpr int64_t kRows = 4;
  for (int64_t d : {1, 3, 8, 17, 33, 64}) {
    SCOPED_TRACE(d);
    const std::vector<float> x = Random(kRows * d, 1), previous = Random(d, 2), mix = Random(d, 3);
    const std::vector<double> expected = reference::TokenShift(x, previous, mix);
    ForEveryTarget([&] {
      std::vector<float> out(x.size());
      TokenShift({x.data(), kRows, d}, previous, mix, {out.data(), kRows, d});
      for (size_t i = 0; i < x.size(); ++i) {
        // Three roundings of terms no larger than |mix|·(|before| + |x|) + |x|.
        const float before = static_cast<int64_t>(i) < d ? previous[i] : x[i - d];
        const double size = std::fabs(mix[i % d]) * (std::fabs(before) + std::fabs(x[i])) + std::fabs(x[i]);
        ASSERT_NEAR(out[i], expected[i], 3 * 0x1p-24 * size) << "element " << i;
      }
    });
  }
}

TEST(TokenShiftTest, PiecesAndInPlaceGiveTheSameBits) {
  constexpr int64_t kRows = 6, kD = 19;
  const std::vector<float> x = Random(kRows * kD, 4), previous = Random(kD, 5), mix = Random(kD, 6);
  ForEveryTarget([&] {
    std::vector<float> whole(x.size()), pieces(x.size()), in_place(x);
    TokenShift({x.data(), kRows, kD}, previous, mix, {whole.data(), kRows, kD});
    TokenShift({x.data(), 2, kD}, previous, mix, {pieces.data(), 2, kD});
    TokenShift({&x[2 * kD], 4, kD}, absl::MakeConstSpan(&x[kD], kD), mix, {&pieces[2 * kD], 4, kD});
    TokenShift({in_place.data(), kRows, kD}, previous, mix, {in_place.data(), kRows, kD});
    EXPECT_EQ(pieces, whole);
    EXPECT_EQ(in_place, whole);
  });
}

TEST(TokenShiftTest, MixOneGivesTheTokenBeforeAndMixZeroTheToken) {
  const std::vector<float> x = {1, 2, 3, 4}, previous = {8, 16}, mix = {1, 0};
  ForEveryTarget([&] {
    std::vector<float> out(4);
    TokenShift({x.data(), 2, 2}, previous, mix, {out.data(), 2, 2});
    EXPECT_EQ(out, (std::vector<float>{8, 2, 1, 4}));
  });
}

}  // namespace
}  // namespace kvm
