#include "kvm/kernels/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "kvm/base/check.h"
#include "kvm/kernels/recycling_memory.h"

namespace kvm {
namespace {

// How often a waiting thread looks before it sleeps: some tens of microseconds, which covers the gap between the loops
// of one step, while an idle pool costs nothing.
constexpr int kSpins = 2000;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace

// One word tells helpers everything: whether a loop is open to be joined, how many helpers are inside, and a number
// that changes with every loop. A helper that wakes too late finds the loop closed, so nobody waits for it.
struct ThreadPool::Impl {
  static constexpr uint64_t kInsideMask = 0xffff;
  static constexpr uint64_t kOpen = 1 << 16;
  static constexpr int kLoopShift = 32;

  Impl(int num_threads, bool oversubscribe) {
    const int cpus = static_cast<int>(AllowedCpus().size());
    if (cpus > 0 && num_threads > cpus) {
      if (!oversubscribe) num_threads = cpus;
      // Spinning would only take the core from the thread that is being waited for.
      if (oversubscribe) spins = 0;
    }
    num_threads = std::min(num_threads, static_cast<int>(kInsideMask));
    helpers.reserve(num_threads - 1);
    try {
      for (int i = 1; i < num_threads; ++i) helpers.emplace_back([this] { Help(); });
    } catch (const std::system_error&) {
      // No more threads are to be had; results do not depend on how many there are.
    }
  }

  ~Impl() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stop.store(true, std::memory_order_relaxed);
    }
    work_changed.notify_all();
    for (std::thread& helper : helpers) helper.join();
  }

  void Run(int64_t loop_count, absl::FunctionRef<void(int64_t)> loop_body) {
    body = &loop_body;
    count = loop_count;
    next.store(0, std::memory_order_relaxed);
    const uint64_t before = state.load(std::memory_order_relaxed);
    Check((before & kOpen) == 0, "no other loop on this pool at the same time");
    const uint64_t loop = (before >> kLoopShift) + 1;
    state.store(loop << kLoopShift | kOpen);
    if (sleepers.load() != 0) {
      // A helper that has counted itself asleep but does not wait yet holds the mutex.
      { std::lock_guard<std::mutex> lock(mutex); }
      work_changed.notify_all();
    }
    TakeIterations();
    state.fetch_and(~kOpen, std::memory_order_acq_rel);
    WaitUntilEmpty();
    if (failure != nullptr) std::rethrow_exception(std::exchange(failure, nullptr));
  }

  void TakeIterations() {
    try {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) (*body)(i);
    } catch (...) {
      next.store(count, std::memory_order_relaxed);
      std::lock_guard<std::mutex> lock(mutex);
      if (failure == nullptr) failure = std::current_exception();
    }
  }

  bool Empty() const { return (state.load(std::memory_order_acquire) & kInsideMask) == 0; }

  void WaitUntilEmpty() {
    for (int i = 0; i < spins; ++i) {
      if (Empty()) return;
      Pause();
    }
    std::unique_lock<std::mutex> lock(mutex);
    emptied.wait(lock, [this] { return Empty(); });
  }

  // Returns false when the pool is being destroyed.
  bool WaitForLoopAfter(uint64_t seen_loop) {
    const auto changed = [&] { return (state.load() >> kLoopShift) != seen_loop; };
    for (int i = 0; i < spins; ++i) {
      if (changed()) return true;
      if (stop.load(std::memory_order_relaxed)) return false;
      Pause();
    }
    std::unique_lock<std::mutex> lock(mutex);
    sleepers.fetch_add(1);
    work_changed.wait(lock, [&] { return stop.load(std::memory_order_relaxed) || changed(); });
    sleepers.fetch_sub(1);
    return !stop.load(std::memory_order_relaxed);
  }

  // Joins the present loop unless it is closed.
  bool Enter() {
    uint64_t seen = state.load(std::memory_order_relaxed);
    while ((seen & kOpen) != 0) {
      if (state.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) return true;
    }
    return false;
  }

  void Leave() {
    const uint64_t before = state.fetch_sub(1, std::memory_order_acq_rel);
    if ((before & (kOpen | kInsideMask)) == 1) {  // closed, and this was the last one
      { std::lock_guard<std::mutex> lock(mutex); }
      emptied.notify_one();
    }
  }

  void Help() {
    uint64_t seen_loop = 0;
    while (WaitForLoopAfter(seen_loop)) {
      seen_loop = state.load(std::memory_order_relaxed) >> kLoopShift;
      if (Enter()) {
        TakeIterations();
        Leave();
      }
    }
  }

  // The loop; written while no helper is inside and no loop is open.
  const absl::FunctionRef<void(int64_t)>* body = nullptr;
  int64_t count = 0;
  std::atomic<int64_t> next{0};
  std::exception_ptr failure;  // what a body threw first

  std::atomic<uint64_t> state{0};
  std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable work_changed;  // a new loop, or stop
  std::condition_variable emptied;       // the last helper left a closed loop
  int spins = kSpins;
  RecyclingMemory memory;
  std::vector<std::thread> helpers;
};

ThreadPool::ThreadPool(int num_threads, bool oversubscribe) : impl_(nullptr) {
  CheckAtLeast(num_threads, 1, "num_threads");
  impl_ = std::make_unique<Impl>(num_threads, oversubscribe);
}

ThreadPool::~ThreadPool() = default;

std::pmr::memory_resource* ThreadPool::memory() const { return &impl_->memory; }

int ThreadPool::num_threads() const { return static_cast<int>(impl_->helpers.size()) + 1; }

void ThreadPool::ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> body) {
  CheckAtLeast(count, 0, "count");
  if (count <= 1 || impl_->helpers.empty()) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  impl_->Run(count, body);
}

void ThreadPool::ParallelForRanges(int64_t count, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) {
  CheckAtLeast(count, 0, "count");
  CheckAtLeast(grain, 1, "grain");
  ParallelFor((count + grain - 1) / grain, [&](int64_t range) {
    const int64_t begin = range * grain;
    body(begin, std::min(begin + grain, count));
  });
}

int NumPhysicalCores() {
  const std::vector<int> cpus = AllowedCpus();
  // Hyperthreads of one core name the same siblings.
  std::set<std::string> cores;
  for (int cpu : cpus) {
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string siblings;
    if (std::getline(file, siblings)) cores.insert(siblings);
  }
  if (!cores.empty()) return static_cast<int>(cores.size());
  if (!cpus.empty()) return static_cast<int>(cpus.size());
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace kvm
