#include "kvm/model/stack/parameter.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace kvm {

void AppendMatrix(const std::string& name, int64_t outputs, int64_t inputs, double gain,
                  std::vector<Parameter>* parameters) {
  parameters->push_back({absl::StrCat(name, ".weight"), {outputs, inputs}, Initialization::Orthogonal(gain), false});
}

void AppendBlockOutput(const std::string& name, int64_t outputs, int64_t inputs, std::vector<Parameter>* parameters) {
  parameters->push_back({absl::StrCat(name, ".weight"), {outputs, inputs}, Initialization::Orthogonal(1), true});
}

void AppendVector(const std::string& name, Shape shape, Initialization initialization,
                  std::vector<Parameter>* parameters) {
  parameters->push_back({name, std::move(shape), std::move(initialization), false});
}

void AppendLowRank(const std::string& first, const std::string& second, int64_t outputs, int64_t rank, int64_t inputs,
                   std::vector<Parameter>* parameters) {
  parameters->push_back({absl::StrCat(first, ".weight"), {rank, inputs}, Initialization::Fill(0), false});
  const double ratio = static_cast<double>(rank) / static_cast<double>(outputs);
  AppendMatrix(second, outputs, rank, 0.1 * std::sqrt(std::max(1.0, ratio)), parameters);
}

void AppendNorm(const std::string& name, int64_t dim, std::vector<Parameter>* parameters) {
  AppendVector(name + ".weight", {dim}, Initialization::Fill(1), parameters);
  AppendVector(name + ".bias", {dim}, Initialization::Fill(0), parameters);
}

Initialization ShiftMix(double exponent, const LayerPlace& place, int64_t n) {
  const double power = exponent * (1 - static_cast<double>(place.layer) / place.num_layers);
  return Initialization::Values(
      [power, n](int64_t i) { return 1 - std::pow(static_cast<double>(i) / static_cast<double>(n), power); });
}

double CenteredChannel(int64_t i, int64_t n) {
  return n == 1 ? 0.0 : static_cast<double>(i) / static_cast<double>(n - 1) - 0.5;
}

Initialization ValueGateBias(int64_t n) {
  return Initialization::Values([n](int64_t i) { return 0.73 - 0.4 * CenteredChannel(i, n); });
}

}  // namespace kvm
