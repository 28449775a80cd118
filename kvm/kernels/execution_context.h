#ifndef KVM_KERNELS_EXECUTION_CONTEXT_H_
#define KVM_KERNELS_EXECUTION_CONTEXT_H_

#include "kvm/kernels/scratch.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {

// What a running model works with: threads, with memory for small lists, and working memory for activations.
// Thread-compatible: one per caller that runs models at the same time.
struct ExecutionContext {
  // As ThreadPool.
  explicit ExecutionContext(int num_threads, bool oversubscribe = false) : pool(num_threads, oversubscribe) {}

  ThreadPool pool;
  Scratch scratch;
};

}  // namespace kvm

#endif  // KVM_KERNELS_EXECUTION_CONTEXT_H_
