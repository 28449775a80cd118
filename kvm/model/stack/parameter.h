#ifndef KVM_MODEL_STACK_PARAMETER_H_
#define KVM_MODEL_STACK_PARAMETER_H_

// One tensor of a stack, and how kinds of mixer list theirs, under the names of the published checkpoints.
//
// New ones begin as in the published training code. With D the width, L layers, layer l, and i = 0..n−1 the channel of
// a vector of n:
//   matrices       orthogonal: gain 1 but for what turns gates; block outputs zero, otherwise as gain 1
//   low rank pairs first matrix zero, second orthogonal with gain 0.1·max(1, sqrt(rank/outputs))
//   shift mixes    x_z[i] = 1 − (i/n)^(e·(1 − l/L)), e = 0.2 for q, r, g; 0.7 for k, v; 0.9 for w, a: early layers and
//                  low channels look at the token before most
//   value gates    v_gate0[i], v0[i] = 0.73 − 0.4·(i/(n−1) − 1/2); lamb 0.5
//   norms          weights 1 and biases 0
// What a kind has beside these stands in its file (kvm/model/stack/kinds).

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kvm/kernels/tensor.h"

namespace kvm {

// How a new parameter begins.
struct Initialization {
  enum class Kind {
    kFill,        // every entry is `scale`
    kUniform,     // uniform in [−scale, scale)
    kOrthogonal,  // orthonormal rows or columns, whichever are fewer, times scale
    kValues,      // entry i is value(i)
  };
  Kind kind = Kind::kFill;
  double scale = 0;
  std::function<double(int64_t)> value;

  static Initialization Fill(double value) { return {Kind::kFill, value, nullptr}; }
  static Initialization Uniform(double bound) { return {Kind::kUniform, bound, nullptr}; }
  static Initialization Orthogonal(double gain) { return {Kind::kOrthogonal, gain, nullptr}; }
  static Initialization Values(std::function<double(int64_t)> value) { return {Kind::kValues, 0, std::move(value)}; }
};

struct Parameter {
  std::string name;
  Shape shape;
  Initialization initialization;
  // A projection from a mixer or MLP back to the residual stream (zero in new models); `initialization` says what it is
  // when a new model is not to begin with zeros there.
  bool is_block_output = false;
};

// Where a layer stands, as its parameters' beginnings depend on it.
struct LayerPlace {
  int layer = 0;
  int num_layers = 0;
  int64_t width = 0;
};

// `name`.weight [outputs, inputs], orthogonal.
void AppendMatrix(const std::string& name, int64_t outputs, int64_t inputs, double gain,
                  std::vector<Parameter>* parameters);

// The same with gain 1, for a projection back to the residual stream.
void AppendBlockOutput(const std::string& name, int64_t outputs, int64_t inputs, std::vector<Parameter>* parameters);

void AppendVector(const std::string& name, Shape shape, Initialization initialization,
                  std::vector<Parameter>* parameters);

// `first`.weight [rank, inputs], of zeros, and `second`.weight [outputs, rank], orthogonal with gain
// 0.1·max(1, sqrt(rank/outputs)).
void AppendLowRank(const std::string& first, const std::string& second, int64_t outputs, int64_t rank, int64_t inputs,
                   std::vector<Parameter>* parameters);

// Weight and bias of a norm over `dim` channels, as `name`.weight and `name`.bias.
void AppendNorm(const std::string& name, int64_t dim, std::vector<Parameter>* parameters);

// The mix of a token with the one before: entry i is 1 − (i/n)^(exponent·(1 − layer/num_layers)).
Initialization ShiftMix(double exponent, const LayerPlace& place, int64_t n);

// From −1/2 to 1/2 over n channels; 0 for a single one.
double CenteredChannel(int64_t i, int64_t n);

// The bias of a gate between values and their anchor, n channels: 0.73 − 0.4·CenteredChannel(i, n).
Initialization ValueGateBias(int64_t n);

}  // namespace kvm

#endif  // KVM_MODEL_STACK_PARAMETER_H_
