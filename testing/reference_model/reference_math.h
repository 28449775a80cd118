#ifndef TESTING_REFERENCE_MODEL_REFERENCE_MATH_H_
#define TESTING_REFERENCE_MODEL_REFERENCE_MATH_H_

// Linear algebra for the reference model: double precision, obvious loops, nothing shared with the kernels.

#include <cstdint>
#include <string>
#include <vector>

#include "kvm/model/weights/weight_source.h"

namespace kvm {
namespace reference {

using Row = std::vector<double>;
using Rows = std::vector<Row>;  // [n][d]

// The tensors under one prefix.
struct Weights {
  const WeightSource& source;
  std::string prefix;

  Weights Under(const std::string& more) const { return {source, prefix + more}; }
  // All elements of a tensor that must be there.
  Row Vector(const std::string& name) const;
  // name + ".weight" [outputs, inputs].
  Rows Matrix(const std::string& name) const;
};

double Dot(const Row& a, const Row& b);
double Norm(const Row& a);
double Sigmoid(double x);

// (x − mean)/sqrt(variance + epsilon) ⊙ weight + bias.
Row LayerNorm(const Row& x, const Row& weight, const Row& bias, double epsilon = 1e-5);
// With the tensors `name`.weight and `name`.bias, every row.
Rows LayerNorm(const Rows& x, const Weights& weights, const std::string& name);

// x·Wᵀ with the matrix `name`.weight.
Rows Linear(const Rows& x, const Weights& weights, const std::string& name);

// Row t becomes row t − 1. Before row 0 comes row 0 itself, or zeros.
enum class BeforeFirst { kFirst, kZero };
Rows Shift(const Rows& x, BeforeFirst before);

// x + mix ⊙ (Shift(x) − x).
Rows ShiftMix(const Rows& x, const Row& mix, BeforeFirst before);

// Channels begin..begin + count of a row.
Row Slice(const Row& x, int64_t begin, int64_t count);

}  // namespace reference
}  // namespace kvm

#endif  // TESTING_REFERENCE_MODEL_REFERENCE_MATH_H_
