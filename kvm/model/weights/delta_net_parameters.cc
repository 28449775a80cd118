#include "kvm/model/weights/delta_net_parameters.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kvm/model/stack/delta_net_spec.h"

namespace kvm {
namespace {

constexpr double kGateGain = 0.1;

class Appender {
 public:
  Appender(std::string prefix, std::vector<Parameter>* parameters)
      : prefix_(std::move(prefix)), parameters_(parameters) {}

  void Add(const std::string& name, Shape shape, Initialization initialization, bool is_block_output = false) {
    parameters_->push_back({prefix_ + name, std::move(shape), std::move(initialization), is_block_output});
  }
  void Matrix(const std::string& name, int64_t outputs, int64_t inputs, double gain) {
    Add(name + ".weight", {outputs, inputs}, Initialization::Orthogonal(gain));
  }

 private:
  std::string prefix_;
  std::vector<Parameter>* parameters_;
};

// 0 to 1 over n entries; one half for a single one.
double Ladder(int64_t i, int64_t n) { return n == 1 ? 0.5 : static_cast<double>(i) / static_cast<double>(n - 1); }

// The log decay with which entry i of n begins, when A is 1: from 0.001 to 0.1.
double TimeStep(int64_t i, int64_t n) { return 1e-3 * std::pow(100.0, Ladder(i, n)); }

double InverseSoftplus(double x) { return x + std::log(-std::expm1(-x)); }

// log A of the value heads.
Initialization DecayRates(int64_t heads) {
  return Initialization::Values([heads](int64_t i) { return std::log(1 + 15 * Ladder(i, heads)); });
}

void AppendConvolution(const std::string& name, const DeltaNetSpec& spec, int64_t channels, Appender* append) {
  if (spec.conv_size == 0) return;
  const double bound = 1 / std::sqrt(static_cast<double>(spec.conv_size));
  append->Add(name + ".weight", {channels, 1, spec.conv_size}, Initialization::Uniform(bound));
  if (spec.conv_bias) append->Add(name + ".bias", {channels}, Initialization::Fill(0));
}

// What both mixers have.
void AppendCommon(const DeltaNetSpec& spec, int64_t width, Appender* append) {
  append->Matrix("q_proj", spec.qk_width(), width, 1);
  append->Matrix("k_proj", spec.qk_width(), width, 1);
  append->Matrix("v_proj", spec.value_width(), width, 1);
  AppendConvolution("q_conv1d", spec, spec.qk_width(), append);
  AppendConvolution("k_conv1d", spec, spec.qk_width(), append);
  AppendConvolution("v_conv1d", spec, spec.value_width(), append);
  append->Matrix("b_proj", spec.num_value_heads, width, kGateGain);
  append->Add("o_norm.weight", {spec.v_dim}, Initialization::Fill(1));
  append->Add("o_proj.weight", {width, spec.value_width()}, Initialization::Orthogonal(1), true);
}

}  // namespace

void AppendGatedDeltaNetParameters(const GatedDeltaNetSpec& spec, const LayerPlace& place, const std::string& prefix,
                                   std::vector<Parameter>* parameters) {
  const DeltaNetSpec sizes = ResolveDeltaNet(spec, place.width);
  const int64_t heads = sizes.num_value_heads;
  Appender append(prefix, parameters);
  AppendCommon(sizes, place.width, &append);
  append.Matrix("a_proj", heads, place.width, kGateGain);
  append.Add("A_log", {heads}, DecayRates(heads));
  append.Add("dt_bias", {heads},
             Initialization::Values([heads](int64_t i) { return InverseSoftplus(TimeStep(i, heads)); }));
  if (spec.output_gate()) append.Matrix("g_proj", sizes.value_width(), place.width, 1);
}

void AppendKimiDeltaParameters(const KimiDeltaSpec& spec, const LayerPlace& place, const std::string& prefix,
                               std::vector<Parameter>* parameters) {
  const DeltaNetSpec sizes = ResolveDeltaNet(spec, place.width);
  const int64_t heads = sizes.num_value_heads, keys = sizes.qk_dim;
  Appender append(prefix, parameters);
  AppendCommon(sizes, place.width, &append);
  append.Matrix("f_proj.0", sizes.v_dim, place.width, 1);
  append.Matrix("f_proj.1", heads * keys, sizes.v_dim, kGateGain);
  if (spec.has_decay_lower_bound()) {
    const double bound = -spec.decay_lower_bound();
    const auto bias = [keys, bound](int64_t i) {
      const double part = std::min(TimeStep(i % keys, keys) / bound, 0.5);
      return std::log(part / (1 - part));
    };
    append.Add("A_log", {heads}, Initialization::Fill(0));
    append.Add("dt_bias", {heads * keys}, Initialization::Values(bias));
  } else {
    const auto bias = [keys](int64_t i) { return InverseSoftplus(TimeStep(i % keys, keys)); };
    append.Add("A_log", {heads}, DecayRates(heads));
    append.Add("dt_bias", {heads * keys}, Initialization::Values(bias));
  }
  append.Matrix("g_proj.0", sizes.v_dim, place.width, 1);
  append.Matrix("g_proj.1", sizes.value_width(), sizes.v_dim, kGateGain);
  append.Add("g_proj.1.bias", {sizes.value_width()}, Initialization::Fill(0));
}

}  // namespace kvm
