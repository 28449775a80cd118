#ifndef KVM_BENCH_OPERATOR_DATA_H_
#define KVM_BENCH_OPERATOR_DATA_H_

// For the operator cases of this folder: their parts, and numbers to compute with.

#include <cstdint>
#include <string>
#include <vector>

#include "kvm/bench/cold_memory.h"
#include "kvm/bench/operator_cases.h"
#include "kvm/kernels/dtype.h"

namespace kvm {

void AppendMatMulCases(const OperatorSizes& sizes, const ColdMemory& memory, std::vector<OperatorCase>* cases);
void AppendSlotCases(const OperatorSizes& sizes, const ColdMemory& memory, std::vector<OperatorCase>* cases);
void AppendRecurrenceCases(const OperatorSizes& sizes, std::vector<OperatorCase>* cases);

// The most that a run of these cases reads from the memory.
int64_t LargestMatrixBytes(const OperatorSizes& sizes);
int64_t LargestAttentionBytes(const OperatorSizes& sizes);

// Evenly spread in [low, high), the same at every call.
std::vector<float> UniformFloats(int64_t n, float low, float high);

// "f32", "bf16", "int8".
std::string ShortName(DType dtype);

}  // namespace kvm

#endif  // KVM_BENCH_OPERATOR_DATA_H_
