#include "tools/report/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace kvm {
namespace {

// Pixels.
constexpr double kWidth = 900;
constexpr double kHeight = 540;
constexpr double kLeft = 92;
constexpr double kRight = 880;
constexpr double kTop = 84;
constexpr double kBottom = 474;

constexpr char kInk[] = "#24292f";
constexpr char kFaintInk[] = "#57606a";
constexpr char kGrid[] = "#e4e8ec";

std::string Escape(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// Where on an axis a value stands: 0 at its beginning, 1 at its end.
double Fraction(const ChartAxis& axis, double value) {
  value = std::min(std::max(value, axis.min), axis.max);
  if (axis.logarithmic) return std::log(value / axis.min) / std::log(axis.max / axis.min);
  return (value - axis.min) / (axis.max - axis.min);
}

double X(const Chart& chart, double value) { return kLeft + (kRight - kLeft) * Fraction(chart.x, value); }
double Y(const Chart& chart, double value) { return kBottom - (kBottom - kTop) * Fraction(chart.y, value); }

std::string Line(double x1, double y1, double x2, double y2, absl::string_view color) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, y1, x2, y2,
                         color);
}

std::string Text(double x, double y, absl::string_view text, absl::string_view anchor, int size,
                 absl::string_view color, absl::string_view more = "") {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\"%s>%s</text>\n", x,
                         y, anchor, size, color, more, Escape(text));
}

std::string Axes(const Chart& chart) {
  std::string svg;
  for (const ChartTick& tick : chart.x.ticks) {
    const double x = X(chart, tick.value);
    absl::StrAppend(&svg, Line(x, kTop, x, kBottom, kGrid), Text(x, kBottom + 20, tick.label, "middle", 13, kInk));
  }
  for (const ChartTick& tick : chart.y.ticks) {
    const double y = Y(chart, tick.value);
    absl::StrAppend(&svg, Line(kLeft, y, kRight, y, kGrid), Text(kLeft - 9, y + 4.5, tick.label, "end", 13, kInk));
  }
  absl::StrAppend(&svg, Line(kLeft, kBottom, kRight, kBottom, kInk), Line(kLeft, kTop, kLeft, kBottom, kInk));
  const double y_middle = (kTop + kBottom) / 2;
  absl::StrAppend(&svg, Text((kLeft + kRight) / 2, kBottom + 48, chart.x.title, "middle", 14, kInk),
                  Text(18, y_middle, chart.y.title, "middle", 14, kInk,
                       absl::StrFormat(" transform=\"rotate(-90 18 %.1f)\"", y_middle)));
  return svg;
}

std::string Curve(const Chart& chart, const ChartSeries& series) {
  if (series.points.empty()) return "";
  std::string svg = "<polyline points=\"";
  for (size_t i = 0; i < series.points.size(); ++i) {
    const ChartPoint& point = series.points[i];
    absl::StrAppendFormat(&svg, "%s%.1f,%.1f", i == 0 ? "" : " ", X(chart, point.x), Y(chart, point.y));
  }
  absl::StrAppendFormat(&svg, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"2.5\" stroke-linejoin=\"round\"%s/>\n",
                        series.color, series.dashed ? " stroke-dasharray=\"3 5\" stroke-opacity=\"0.7\"" : "");
  for (const ChartPoint& point : series.points) {
    if (series.dashed) break;
    absl::StrAppendFormat(&svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", X(chart, point.x),
                          Y(chart, point.y), series.color);
  }
  if (!series.end_label.empty()) {
    const ChartPoint& last = series.points.back();
    absl::StrAppend(&svg, Text(X(chart, last.x) - 6, Y(chart, last.y) - 12, series.end_label, "end", 14, series.color,
                               " font-weight=\"bold\""));
  }
  return svg;
}

std::string Band(const Chart& chart, const ChartBand& band) {
  const double x = X(chart, band.from);
  return absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, kTop,
                         X(chart, band.to) - x, kBottom - kTop, band.color);
}

// One path for all of them: a line as thick as they are high.
std::string Cells(const Chart& chart, const ChartCells& cells) {
  if (cells.cells.empty()) return "";
  std::string svg = "<path d=\"";
  for (const ChartCell& cell : cells.cells) {
    const double x = X(chart, cell.x);
    absl::StrAppendFormat(&svg, "M%.1f %.1fh%.1f", x, Y(chart, cell.y + cells.height / 2),
                          X(chart, cell.x + cell.width) - x);
  }
  const double thickness = Y(chart, chart.y.min) - Y(chart, chart.y.min + cells.height);
  absl::StrAppendFormat(&svg, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.2f\"/>\n", cells.color, thickness);
  return svg;
}

std::string Legend(const Chart& chart) {
  std::string svg;
  double y = kTop + 26;
  const auto add_square = [&](const std::string& label, const std::string& color) {
    absl::StrAppendFormat(&svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" fill=\"%s\"/>\n", kLeft + 30,
                          y - 7, color);
    absl::StrAppend(&svg, Text(kLeft + 62, y + 4.5, label, "start", 14, kInk));
    y += 24;
  };
  for (const ChartCells& cells : chart.cells) add_square(cells.label, cells.color);
  for (const ChartBand& band : chart.bands) add_square(band.label, band.color);
  for (const ChartSeries& series : chart.series) {
    if (!series.in_legend) continue;
    absl::StrAppendFormat(
        &svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2.5\"%s/>\n",
        kLeft + 22, y, kLeft + 52, y, series.color, series.dashed ? " stroke-dasharray=\"3 5\"" : "");
    absl::StrAppend(&svg, Text(kLeft + 62, y + 4.5, series.label, "start", 14, kInk));
    y += 24;
  }
  return svg;
}

}  // namespace

std::string RenderSvg(const Chart& chart) {
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"'DejaVu Sans', Verdana, Arial, sans-serif\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
      kWidth, kHeight, kWidth, kHeight);
  absl::StrAppend(&svg, Text(kLeft, 36, chart.title, "start", 20, kInk, " font-weight=\"bold\""),
                  Text(kLeft, 60, chart.subtitle, "start", 13, kFaintInk));
  for (const ChartBand& band : chart.bands) absl::StrAppend(&svg, Band(chart, band));
  absl::StrAppend(&svg, Axes(chart));
  for (const ChartCells& cells : chart.cells) absl::StrAppend(&svg, Cells(chart, cells));
  for (const ChartSeries& series : chart.series) absl::StrAppend(&svg, Curve(chart, series));
  absl::StrAppend(&svg, Legend(chart), "</svg>\n");
  return svg;
}

}  // namespace kvm
