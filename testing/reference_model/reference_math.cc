#include "testing/reference_model/reference_math.h"

#include <cmath>

#include "glog/logging.h"

namespace kvm {
namespace reference {

Row Weights::Vector(const std::string& name) const {
  const TensorView* const tensor = source.Find(prefix + name);
  CHECK(tensor != nullptr) << prefix << name;
  const std::vector<float> values = ReadFloats(*tensor);
  return Row(values.begin(), values.end());
}

Rows Weights::Matrix(const std::string& name) const {
  const Row all = Vector(name + ".weight");
  const Shape& shape = source.Find(prefix + name + ".weight")->shape;
  Rows matrix;
  for (int64_t r = 0; r < shape[0]; ++r) matrix.push_back(Slice(all, r * shape[1], shape[1]));
  return matrix;
}

double Dot(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double Norm(const Row& a) { return std::sqrt(Dot(a, a)); }

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

Row LayerNorm(const Row& x, const Row& weight, const Row& bias, double epsilon) {
  const double n = static_cast<double>(x.size());
  double mean = 0, variance = 0;
  for (const double v : x) mean += v / n;
  for (const double v : x) variance += (v - mean) * (v - mean) / n;
  Row out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = (x[i] - mean) / std::sqrt(variance + epsilon) * weight[i] + bias[i];
  return out;
}

Rows LayerNorm(const Rows& x, const Weights& weights, const std::string& name) {
  const Row weight = weights.Vector(name + ".weight"), bias = weights.Vector(name + ".bias");
  Rows out;
  for (const Row& row : x) out.push_back(LayerNorm(row, weight, bias));
  return out;
}

Rows Linear(const Rows& x, const Weights& weights, const std::string& name) {
  const Rows matrix = weights.Matrix(name);
  Rows out;
  for (const Row& row : x) {
    out.emplace_back();
    for (const Row& w : matrix) out.back().push_back(Dot(row, w));
  }
  return out;
}

Rows Shift(const Rows& x, BeforeFirst before) {
  Rows out = x;
  for (size_t t = 1; t < x.size(); ++t) out[t] = x[t - 1];
  if (before == BeforeFirst::kZero) out[0].assign(x[0].size(), 0);
  return out;
}

Rows ShiftMix(const Rows& x, const Row& mix, BeforeFirst before) {
  Rows out = Shift(x, before);
  for (size_t t = 0; t < x.size(); ++t) {
    for (size_t i = 0; i < mix.size(); ++i) out[t][i] = x[t][i] + mix[i] * (out[t][i] - x[t][i]);
  }
  return out;
}

Row Slice(const Row& x, int64_t begin, int64_t count) { return Row(x.begin() + begin, x.begin() + begin + count); }

}  // namespace reference
}  // namespace kvm
