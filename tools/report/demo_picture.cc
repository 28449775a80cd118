#include "tools/report/demo_picture.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kvm/model/engine/state_size.h"
#include "tools/cli/format.h"
#include "tools/report/svg_chart.h"

namespace kvm {
namespace {

constexpr int64_t kLastContext = 1024 * 1024;
constexpr char kStateColor[] = "#0969da";
constexpr char kFullColor[] = "#cf222e";

ChartPoint Point(int64_t context, int64_t bytes) { return {static_cast<double>(context), static_cast<double>(bytes)}; }

// "64 MiB" rather than "64.0 MiB".
std::string RoundBytes(double bytes) {
  std::string text = FormatBytes(static_cast<int64_t>(bytes));
  const size_t zero = text.find(".0");
  return zero == std::string::npos ? text : text.erase(zero, 2);
}

// Powers of two around [low, high], every `step`-th of them a tick.
ChartAxis PowerAxis(const std::string& title, double low, double high, int step, std::string (*label)(double)) {
  ChartAxis axis;
  axis.title = title;
  axis.logarithmic = true;
  const int first = static_cast<int>(std::floor(std::log2(low)));
  const int last = std::max(first + 1, static_cast<int>(std::ceil(std::log2(high))));
  axis.min = std::exp2(first);
  axis.max = std::exp2(last);
  for (int power = first; power <= last; ++power) {
    if ((power - first) % step == 0) axis.ticks.push_back({std::exp2(power), label(std::exp2(power))});
  }
  return axis;
}

}  // namespace

std::string DrawDemoPicture(const StackSpec& spec, DType state_dtype, const std::vector<DemoPoint>& points) {
  ChartSeries state{"KVM + RWKV-7 state, measured", kStateColor, {}, false, true, ""};
  ChartSeries full{"full key/value cache of the same stack", kFullColor, {}, false, true, ""};
  for (const DemoPoint& point : points) {
    state.points.push_back(Point(point.context, point.state_bytes));
    full.points.push_back(Point(point.context, point.full_cache_bytes));
  }
  ChartSeries more_state{"computed up to 1M tokens", kStateColor, {state.points.back()}, true, true, ""};
  ChartSeries more_full{"", kFullColor, {full.points.back()}, true, false, ""};
  for (int64_t context = 2 * points.back().context; context <= kLastContext; context *= 2) {
    more_state.points.push_back(Point(context, SequenceStateSize(spec, state_dtype, context).bytes));
    more_full.points.push_back(Point(context, FullCacheByteSize(spec, state_dtype, context)));
  }
  more_state.end_label = FormatBytes(static_cast<int64_t>(more_state.points.back().y));
  more_full.end_label = FormatBytes(static_cast<int64_t>(more_full.points.back().y));

  const double lowest = std::min(state.points.front().y, full.points.front().y);
  const double highest = std::max(more_state.points.back().y, more_full.points.back().y);
  Chart chart;
  chart.title = "What one sequence keeps in memory";
  chart.subtitle = absl::StrCat(spec.layers_size(), " layers of width ", spec.width(),
                                ", state rows growing with the square root of the context, ", Name(state_dtype));
  chart.x = PowerAxis("context (tokens)", state.points.front().x, more_state.points.back().x, 1,
                      [](double value) { return FormatContext(static_cast<int64_t>(value)); });
  chart.y = PowerAxis("bytes per sequence", lowest, 2 * highest, 2, RoundBytes);
  chart.series = {full, more_full, state, more_state};
  return RenderSvg(chart);
}

}  // namespace kvm
