#ifndef KVM_MODEL_WEIGHTS_PARAMETERS_H_
#define KVM_MODEL_WEIGHTS_PARAMETERS_H_

// Every tensor of a stack: name, shape and how a new one begins. The single list that loading checks against, that
// new models are initialized from, and that tools print.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/weight_source.h"

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

// All parameters of a valid spec, in a fixed order.
std::vector<Parameter> StackParameters(const StackSpec& spec);

// The same one after the other, with those of one layer in memory at a time.
void ForEachParameter(const StackSpec& spec, absl::FunctionRef<void(const Parameter& parameter)> visit);

// OK when `weights` has exactly the parameters of `spec` with their shapes and floating point dtypes. Otherwise
// InvalidArgument that names all missing, unexpected and mis-shaped tensors (tensor_problems.h). Tensors that published
// files hold although nothing reads them (mixer_parameters.h) may be there. Memory and message are in proportion to the
// spec's text and to what `weights` holds, not to the parameters that the spec asks for.
absl::Status CheckWeights(const StackSpec& spec, const WeightSource& weights);

// The number of elements of all parameters.
int64_t NumParameters(const StackSpec& spec);

}  // namespace kvm

#endif  // KVM_MODEL_WEIGHTS_PARAMETERS_H_
