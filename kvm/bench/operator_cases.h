#ifndef KVM_BENCH_OPERATOR_CASES_H_
#define KVM_BENCH_OPERATOR_CASES_H_

// The kernels that a model's time goes into, each at the sizes that a layer calls it with, ready to be timed.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kvm/bench/cold_memory.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {

// Defaults: the published 120M shape, at 32K tokens of context. All are at least 1; width is a multiple of heads.
struct OperatorSizes {
  int64_t width = 768;
  int64_t mlp_width = 3072;
  int64_t vocab = 50304;
  int64_t heads = 6;  // of attention and the delta rules; those of RWKV-7 have 64 channels
  int64_t chunk = 256;
  int64_t rows = 2896;  // floor(16·sqrt(32768))
  int64_t centroids = 2048;
  int64_t ovq_chunk = 128;
};

// What keeps a kernel from being faster.
enum class Bound {
  kMultiplyAdds,  // arithmetic: the multiply-add peak
  kReads,         // memory: the read rate
  kMatMul,  // products of matrices beside other work: the rate of the dense product, which is the peak in practice
};

struct OperatorCase {
  std::string kernel;  // "matmul"
  std::string what;    // "256 rows, 768 -> 3072, f32"
  double flop = 0;     // of one run
  double bytes = 0;    // read from memory by one run, as far as it is large
  Bound bound = Bound::kMultiplyAdds;
  // The case whose rate kMatMul means; there is one.
  bool is_matmul_peak = false;
  // The attention that a chunk needs beside its update of the state, and that update: one case each.
  bool is_chunk_attention = false;
  bool is_chunk_update = false;
  // May be called with any pool, not at the same time.
  std::function<void(ThreadPool& pool)> run;
};

// Bytes that `memory` has to have at least: the largest of what one run reads from it.
int64_t MinColdBytes(const OperatorSizes& sizes);

// `memory` must outlive the cases.
std::vector<OperatorCase> OperatorCases(const OperatorSizes& sizes, const ColdMemory& memory);

}  // namespace kvm

#endif  // KVM_BENCH_OPERATOR_CASES_H_
