#include "kvm/bench/power_law.h"

#include <cmath>

namespace kvm {

std::optional<double> FitExponent(absl::Span<const XY> points) {
  double mean_x = 0, mean_y = 0;
  for (const XY& p : points) {
    mean_x += std::log(p.x);
    mean_y += std::log(p.y);
  }
  mean_x /= static_cast<double>(points.size());
  mean_y /= static_cast<double>(points.size());
  double xy = 0, xx = 0;
  for (const XY& p : points) {
    const double dx = std::log(p.x) - mean_x;
    xy += dx * (std::log(p.y) - mean_y);
    xx += dx * dx;
  }
  if (!(xx > 0)) return std::nullopt;
  return xy / xx;
}

}  // namespace kvm
