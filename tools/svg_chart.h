#ifndef KVM_TOOLS_SVG_CHART_H_
#define KVM_TOOLS_SVG_CHART_H_

// Small line charts as SVG pictures.

#include <string>
#include <vector>

namespace kvm {

struct ChartTick {
  double value;
  std::string label;
};

struct ChartAxis {
  std::string title;
  bool logarithmic = false;  // then min > 0
  double min = 0;
  double max = 1;  // > min
  std::vector<ChartTick> ticks;
};

struct ChartPoint {
  double x;
  double y;
};

struct ChartSeries {
  std::string label;
  std::string color;  // as in SVG: "#1f77b4"
  std::vector<ChartPoint> points;
  bool dashed = false;  // a dashed line without markers
  bool in_legend = true;
  std::string end_label;  // stands beside the last point, unless empty
};

struct Chart {
  std::string title;
  std::string subtitle;
  ChartAxis x;
  ChartAxis y;
  std::vector<ChartSeries> series;
};

// The whole file. Points outside the axes are drawn at their edge.
std::string RenderSvg(const Chart& chart);

}  // namespace kvm

#endif  // KVM_TOOLS_SVG_CHART_H_
