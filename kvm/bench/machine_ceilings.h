#ifndef KVM_BENCH_MACHINE_CEILINGS_H_
#define KVM_BENCH_MACHINE_CEILINGS_H_

// How fast this machine can go at all: what measured rates of kernels are to be compared with.
//
// Both functions take one sample of some milliseconds. A machine's clock moves with its load, so take samples in turn
// with whatever is compared with them, and compare medians.

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {

// Float32 operations per second of all threads of `pool`, a multiply-add counting as two, with nothing but registers
// involved: every thread runs independent chains of multiply-adds over the widest vectors that kernels use here, as
// many chains as hide the latency of each. Where an instruction set has no fused multiply-add it is a product and a
// sum.
double SampleMultiplyAddRate(ThreadPool& pool);

// Bytes per second at which all threads of `pool` together read `buffer`, once, in blocks that threads take in
// order and read in four streams, adding up its elements. A buffer far larger than the caches (256 MiB and more; the
// calling program has written to all of it) gives the rate of main memory.
double SampleReadRate(absl::Span<const float> buffer, ThreadPool& pool);

// The instruction set that kernels are run with here: "AVX3", "NEON", ...
std::string InstructionSet();

}  // namespace kvm

#endif  // KVM_BENCH_MACHINE_CEILINGS_H_
