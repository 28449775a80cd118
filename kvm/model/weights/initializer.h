#ifndef KVM_MODEL_WEIGHTS_INITIALIZER_H_
#define KVM_MODEL_WEIGHTS_INITIALIZER_H_

// Weights of a new model.

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/strings/string_view.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

struct InitializerOptions {
  uint64_t seed = 0;
  // New models begin with block outputs of zero: every layer passes its input on. A positive gain makes them orthogonal
  // instead, so that a model that is not going to be trained mixes tokens all the same.
  double block_output_gain = 0;
  // Which parameters to draw, by name; all without it.
  std::function<bool(absl::string_view)> wanted;
  // Asked now and then, on any thread; once it says so, nothing more is drawn.
  std::function<bool()> cancelled = [] { return false; };
};

// Draws every wanted parameter of a valid spec as float32. A parameter's values depend on the seed, its name and its
// shape alone. Null when cancelled.
std::unique_ptr<WeightSource> InitializeWeights(const StackSpec& spec, const InitializerOptions& options,
                                                ThreadPool& pool, const MixerKinds& kinds = BuiltinMixerKinds());

}  // namespace kvm

#endif  // KVM_MODEL_WEIGHTS_INITIALIZER_H_
