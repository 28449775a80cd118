#ifndef KVM_KERNELS_THREAD_POOL_H_
#define KVM_KERNELS_THREAD_POOL_H_

// A fixed set of threads that share out the iterations of one loop at a time, and the memory that loops work in.
//
//   ThreadPool pool(4);
//   pool.ParallelFor(rows, [&](int64_t r) {
//     std::pmr::vector<float> sums(n, pool.memory());
//     ...
//   });
//
// Every kernel splits its *outputs* over iterations and never a sum, so results do not depend on the thread count.

#include <cstdint>
#include <memory>
#include <memory_resource>

#include "absl/functional/function_ref.h"

namespace kvm {

// Thread-compatible: one thread calls ParallelFor at a time, and not from inside a body.
class ThreadPool {
 public:
  // `num_threads` >= 1 counts the calling thread: ThreadPool(1) starts none and runs every loop inline. Where the
  // system grants fewer, the pool has fewer. More than there are processors to run on would only take turns: they are
  // not started unless `oversubscribe`, which is for tests.
  explicit ThreadPool(int num_threads, bool oversubscribe = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // As many as there are, the calling thread among them.
  int num_threads() const;

  // Calls body(i) once for every 0 <= i < count, in any order and on any thread, and returns when all are done. When a
  // body throws, on whatever thread, iterations that have not begun are left out, and what it threw comes out of here.
  void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> body);

  // Cuts 0..count into ranges of `grain` (the last may be shorter) and calls body(begin, end) once for each.
  void ParallelForRanges(int64_t count, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body);

  // Memory for short-lived lists and buffers, of loop bodies too: what is given back is kept, so that a step that has
  // been done before allocates nothing. Thread-safe; lives as long as the pool.
  std::pmr::memory_resource* memory() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Cores that can run a thread at full rate: physical ones, not hyperthreads; at least 1.
int NumPhysicalCores();

}  // namespace kvm

#endif  // KVM_KERNELS_THREAD_POOL_H_
