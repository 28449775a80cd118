#include "kvm/bench/operator_cases.h"

#include <algorithm>
#include <random>

#include "kvm/bench/operator_data.h"

namespace kvm {

std::vector<float> UniformFloats(int64_t n, float low, float high) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> distribution(low, high);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& e : x) e = distribution(random);
  return x;
}

std::string ShortName(DType dtype) {
  if (dtype == DType::kI8) return "int8";
  return dtype == DType::kBF16 ? "bf16" : "f32";
}

int64_t MinColdBytes(const OperatorSizes& sizes) {
  return std::max(LargestMatrixBytes(sizes), LargestAttentionBytes(sizes));
}

std::vector<OperatorCase> OperatorCases(const OperatorSizes& sizes, const ColdMemory& memory) {
  std::vector<OperatorCase> cases;
  AppendMatMulCases(sizes, memory, &cases);
  AppendSlotCases(sizes, memory, &cases);
  AppendRecurrenceCases(sizes, &cases);
  return cases;
}

}  // namespace kvm
