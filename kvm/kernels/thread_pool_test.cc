#include "kvm/kernels/thread_pool.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace kvm {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, EveryIterationRunsOnce) {
  ThreadPool pool(GetParam(), /*oversubscribe=*/true);
  EXPECT_EQ(pool.num_threads(), GetParam());
  for (int64_t count : {0, 1, 2, 3, 7, 1000}) {
    std::vector<int> runs(count, 0);
    pool.ParallelFor(count, [&](int64_t i) { ++runs[i]; });
    for (int r : runs) EXPECT_EQ(r, 1);
  }
}

TEST_P(ThreadPoolTest, RangesCoverTheCountInGrains) {
  ThreadPool pool(GetParam(), /*oversubscribe=*/true);
  for (int64_t count : {0, 1, 5, 64, 65}) {
    std::vector<int> runs(count, 0);
    std::mutex mutex;
    std::set<std::pair<int64_t, int64_t>> ranges;
    pool.ParallelForRanges(count, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++runs[i];
      std::lock_guard<std::mutex> lock(mutex);
      ranges.insert({begin, end});
    });
    for (int r : runs) EXPECT_EQ(r, 1);
    EXPECT_EQ(ranges.size(), static_cast<size_t>((count + 7) / 8));
    for (auto [begin, end] : ranges) EXPECT_EQ(end, std::min(begin + 8, count));
  }
}

// The results of one loop are visible to the next, whichever threads ran them.
TEST_P(ThreadPoolTest, LoopsFollowEachOther) {
  ThreadPool pool(GetParam(), /*oversubscribe=*/true);
  constexpr int kLoops = 3000;
  std::vector<int> a(17, 0), b(17, 0);
  for (int loop = 0; loop < kLoops; ++loop) {
    pool.ParallelFor(17, [&](int64_t i) { b[i] = a[16 - i] + 1; });
    std::swap(a, b);
  }
  EXPECT_EQ(a, std::vector<int>(17, kLoops));
}

TEST_P(ThreadPoolTest, LoopsAfterAPauseStillRun) {
  ThreadPool pool(GetParam(), /*oversubscribe=*/true);
  for (int loop = 0; loop < 5; ++loop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // long enough for helpers to fall asleep
    std::atomic<int64_t> sum{0};
    pool.ParallelFor(100, [&](int64_t i) { sum += i; });
    EXPECT_EQ(sum, 4950);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8, 40));

// Each iteration waits for the other: one thread alone would never see both. The pool has its second thread on a single
// processor, too, where a wait gives way to it.
TEST(ThreadPoolTest, IterationsRunAtTheSameTime) {
  ThreadPool pool(2, /*oversubscribe=*/true);
  ASSERT_EQ(pool.num_threads(), 2);
  std::atomic<int> arrived{0};
  pool.ParallelFor(2, [&](int64_t) {
    ++arrived;
    const auto start = std::chrono::steady_clock::now();
    while (arrived < 2 && std::chrono::steady_clock::now() - start < std::chrono::seconds(60)) {
      std::this_thread::yield();
    }
    EXPECT_EQ(arrived, 2);
  });
}

TEST(ThreadPoolTest, HasNoMoreThreadsThanProcessors) {
  ThreadPool pool(1000);
  EXPECT_GE(pool.num_threads(), 1);
  EXPECT_LE(pool.num_threads(), static_cast<int>(std::thread::hardware_concurrency()));
}

TEST_P(ThreadPoolTest, WhatABodyThrowsEndsTheLoopAndComesOut) {
  ThreadPool pool(GetParam(), /*oversubscribe=*/true);
  for (int loop = 0; loop < 20; ++loop) {
    std::atomic<int> inside{0};
    EXPECT_THROW(pool.ParallelFor(1000,
                                  [&](int64_t i) {
                                    ++inside;
                                    if (i == 13 * loop) {
                                      --inside;
                                      throw std::bad_alloc();
                                    }
                                    --inside;
                                  }),
                 std::bad_alloc);
    EXPECT_EQ(inside, 0) << "a body runs on";
    std::atomic<int64_t> sum{0};
    pool.ParallelFor(100, [&](int64_t i) { sum += i; });
    EXPECT_EQ(sum, 4950);
  }
  EXPECT_THROW(pool.ParallelFor(100, [](int64_t) { throw std::bad_alloc(); }), std::bad_alloc);
}

// Threads whose stacks fit no address space stand in for a system that grants no more.
TEST(ThreadPoolTest, GoesOnWithTheThreadsThatStart) {
  pthread_attr_t normal, huge;
  ASSERT_EQ(pthread_getattr_default_np(&normal), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 46), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  {
    ThreadPool pool(100, /*oversubscribe=*/true);
    EXPECT_LT(pool.num_threads(), 100);
    std::atomic<int64_t> sum{0};
    pool.ParallelFor(1000, [&](int64_t i) { sum += i; });
    EXPECT_EQ(sum, 499500);
  }
  ASSERT_EQ(pthread_setattr_default_np(&normal), 0);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&normal);
}

TEST(NumPhysicalCoresTest, IsBetweenOneAndTheNumberOfCpus) {
  EXPECT_GE(NumPhysicalCores(), 1);
  EXPECT_LE(NumPhysicalCores(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace kvm
