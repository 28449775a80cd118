#include "kvm/bench/interleave.h"

#include <chrono>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace kvm {
namespace {

TEST(InterleaveTest, AllCasesAreRunInTurn) {
  std::string order;
  const std::vector<std::function<void()>> cases = {[&] { order += 'a'; }, [&] { order += 'b'; }};
  InterleaveOptions options;
  options.rounds = 3;
  options.min_seconds = 0;
  const auto samples = TimeInterleaved(cases, options, [&] { order += '|'; }, {});
  ASSERT_TRUE(samples.ok()) << samples.status();
  EXPECT_EQ(order, "ab|ab|ab|ab");
  ASSERT_EQ(samples->size(), 2u);
  EXPECT_EQ((*samples)[0].size(), 3u);
}

TEST(InterleaveTest, SamplesAreSecondsOfOneRun) {
  const std::vector<std::function<void()>> cases = {[] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }};
  InterleaveOptions options;
  options.rounds = 2;
  const auto samples = TimeInterleaved(cases, options, [] {}, {});
  ASSERT_TRUE(samples.ok()) << samples.status();
  for (const double seconds : (*samples)[0]) EXPECT_GE(seconds, 0.002);
}

TEST(InterleaveTest, ShortCasesAreRepeated) {
  int runs = 0;
  const std::vector<std::function<void()>> cases = {[&] { ++runs; }};
  InterleaveOptions options;
  options.rounds = 1;
  ASSERT_TRUE(TimeInterleaved(cases, options, [] {}, {}).ok());
  EXPECT_GT(runs, 10);
}

TEST(InterleaveTest, StopsWhenAsked) {
  int runs = 0;
  const std::vector<std::function<void()>> cases = {[&] { ++runs; }};
  InterleaveOptions options;
  options.rounds = 100;
  options.min_seconds = 0;
  BenchHooks hooks;
  hooks.cancelled = [&] { return runs == 5; };
  const auto samples = TimeInterleaved(
      cases, options, [] {}, hooks);
  EXPECT_EQ(samples.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(runs, 5);
}

TEST(InterleaveTest, TellsHowFarItIs) {
  std::vector<int64_t> seen;
  BenchHooks hooks;
  hooks.progress = [&](const std::string&, const std::string&, int64_t done, int64_t total) {
    EXPECT_EQ(total, 3);
    seen.push_back(done);
  };
  InterleaveOptions options;
  options.rounds = 2;
  const std::vector<std::function<void()>> cases = {[] {}};
  ASSERT_TRUE(TimeInterleaved(
                  cases, options, [] {}, hooks)
                  .ok());
  EXPECT_EQ(seen, (std::vector<int64_t>{1, 2, 3}));
}

}  // namespace
}  // namespace kvm
