#ifndef KVM_BENCH_CEILING_METER_H_
#define KVM_BENCH_CEILING_METER_H_

// A machine's ceilings (kvm/bench/machine_ceilings.h) for some numbers of threads, sampled again and again.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kvm/bench/cold_memory.h"
#include "kvm/bench/spread.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {

struct Ceilings {
  int threads = 0;
  Spread flop_rate;  // float32 operations per second
  Spread read_rate;  // bytes per second from memory
};

// Thread-compatible. Pools and memory must outlive it.
class CeilingMeter {
 public:
  CeilingMeter(std::vector<ThreadPool*> pools, const ColdMemory* memory);

  // Takes a sample of every ceiling.
  void Sample();

  // Of all samples so far, of which there is at least one; in the order of the pools.
  std::vector<Ceilings> Summary() const;

 private:
  struct Samples {
    std::vector<double> flop_rates;
    std::vector<double> read_rates;
  };
  std::vector<ThreadPool*> pools_;
  const ColdMemory* memory_;
  std::vector<Samples> samples_;
};

// The ceilings of that many threads; they are among `all`.
const Ceilings& CeilingsOf(int threads, absl::Span<const Ceilings> all);

}  // namespace kvm

#endif  // KVM_BENCH_CEILING_METER_H_
