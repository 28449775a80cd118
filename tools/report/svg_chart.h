#ifndef KVM_TOOLS_REPORT_SVG_CHART_H_
#define KVM_TOOLS_REPORT_SVG_CHART_H_

// Small charts as SVG pictures: lines, bands and cells.

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

// A range of x over the whole height.
struct ChartBand {
  std::string label;
  std::string color;
  double from;
  double to;
};

// Rectangles of one color and height, each from (x, y) to the right and up; for linear axes.
struct ChartCell {
  double x;
  double y;
  double width;
};
struct ChartCells {
  std::string label;
  std::string color;
  double height;
  std::vector<ChartCell> cells;
};

struct Chart {
  std::string title;
  std::string subtitle;
  ChartAxis x;
  ChartAxis y;
  std::vector<ChartSeries> series;
  std::vector<ChartBand> bands;   // behind all else
  std::vector<ChartCells> cells;  // later ones cover earlier ones
};

// The whole file. Points outside the axes are drawn at their edge.
std::string RenderSvg(const Chart& chart);

}  // namespace kvm

#endif  // KVM_TOOLS_REPORT_SVG_CHART_H_
