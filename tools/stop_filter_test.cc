#include "tools/stop_filter.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace kvm {
namespace {

std::string Filter(const std::vector<std::string>& stops, const std::vector<std::string>& pieces, bool* stopped) {
  StopFilter filter(stops);
  std::string text;
  for (const std::string& piece : pieces) text += filter.Add(piece);
  *stopped = filter.stopped();
  return text + filter.Finish();
}

TEST(StopFilterTest, CutsBeforeAStopThatStraddlesPieces) {
  bool stopped;
  EXPECT_EQ(Filter({"\n\nUser"}, {"yes\n", "\nUs", "er: hi"}, &stopped), "yes");
  EXPECT_TRUE(stopped);
}

TEST(StopFilterTest, PassesOnWhatOnlyBeganLikeAStop) {
  bool stopped;
  EXPECT_EQ(Filter({"\n\nUser"}, {"yes\n", "\nUs", "ual"}, &stopped), "yes\n\nUsual");
  EXPECT_FALSE(stopped);
}

TEST(StopFilterTest, FindsAStopInsideAFalseBeginning) {
  bool stopped;
  EXPECT_EQ(Filter({"aab"}, {"a", "a", "a", "b", "c"}, &stopped), "a");
  EXPECT_TRUE(stopped);
}

TEST(StopFilterTest, TheFirstOfSeveralStopsCounts) {
  bool stopped;
  EXPECT_EQ(Filter({"two", "one"}, {"zero one two"}, &stopped), "zero ");
  EXPECT_TRUE(stopped);
}

TEST(StopFilterTest, HoldsBackNothingNeedlessly) {
  StopFilter filter({"stop"});
  EXPECT_EQ(filter.Add("go s"), "go ");
  EXPECT_EQ(filter.Add("o"), "so");
  EXPECT_EQ(filter.Finish(), "");
}

TEST(StopFilterTest, WithoutStopsEverythingPasses) {
  bool stopped;
  EXPECT_EQ(Filter({""}, {"a", "b"}, &stopped), "ab");
  EXPECT_FALSE(stopped);
}

}  // namespace
}  // namespace kvm
