#include "tools/report/svg_chart.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The plot area spans x from 92 to 880 and y from 474 (bottom) to 84 (top).
Chart SmallChart() {
  Chart chart;
  chart.title = "Rows & <bytes>";
  chart.x = {"context", false, 0, 10, {{5, "five"}}};
  chart.y = {"bytes", true, 1, 100, {{10, "ten"}}};
  chart.series.push_back({"state", "#123456", {{0, 1}, {5, 10}, {10, 100}}, false, true, ""});
  return chart;
}

TEST(SvgChartTest, PutsPointsOnLinearAndLogarithmicAxes) {
  EXPECT_THAT(RenderSvg(SmallChart()), HasSubstr("<polyline points=\"92.0,474.0 486.0,279.0 880.0,84.0\""));
}

TEST(SvgChartTest, TicksStandAtTheirValues) {
  const std::string svg = RenderSvg(SmallChart());
  EXPECT_THAT(svg,
              HasSubstr("<text x=\"486.0\" y=\"494.0\" text-anchor=\"middle\" font-size=\"13\" fill=\"#24292f\">five"));
  EXPECT_THAT(svg, HasSubstr("<text x=\"83.0\" y=\"283.5\" text-anchor=\"end\" font-size=\"13\" fill=\"#24292f\">ten"));
}

TEST(SvgChartTest, EscapesText) { EXPECT_THAT(RenderSvg(SmallChart()), HasSubstr(">Rows &amp; &lt;bytes&gt;<")); }

TEST(SvgChartTest, KeepsPointsInsideTheAxes) {
  Chart chart = SmallChart();
  chart.series[0].points = {{-3, 0}, {20, 1e9}};
  EXPECT_THAT(RenderSvg(chart), HasSubstr("<polyline points=\"92.0,474.0 880.0,84.0\""));
}

TEST(SvgChartTest, BandsAndCellsLieInTheirPlacesAndAreExplained) {
  Chart chart = SmallChart();
  chart.y = {"rows", false, 0, 10, {}};
  chart.series.clear();
  chart.bands.push_back({"window", "#abcdef", 5, 10});
  chart.cells.push_back({"merged", "#fedcba", 1, {{0, 0, 5}, {5, 9, 2.5}}});
  const std::string svg = RenderSvg(chart);
  EXPECT_THAT(svg, HasSubstr("<rect x=\"486.0\" y=\"84.0\" width=\"394.0\" height=\"390.0\" fill=\"#abcdef\"/>"));
  EXPECT_THAT(svg, HasSubstr("<path d=\"M92.0 454.5h394.0M486.0 103.5h197.0\" fill=\"none\" stroke=\"#fedcba\" "
                             "stroke-width=\"39.00\"/>"));
  EXPECT_THAT(svg, HasSubstr(">window</text>"));
  EXPECT_THAT(svg, HasSubstr(">merged</text>"));
}

TEST(SvgChartTest, DashedSeriesHaveNoMarkers) {
  Chart chart = SmallChart();
  EXPECT_THAT(RenderSvg(chart), HasSubstr("<circle"));
  chart.series[0].dashed = true;
  EXPECT_THAT(RenderSvg(chart), Not(HasSubstr("<circle")));
}

}  // namespace
}  // namespace kvm
