#ifndef KVM_MODEL_STACK_MODEL_OPTIONS_H_
#define KVM_MODEL_STACK_MODEL_OPTIONS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/weight_type.h"

namespace kvm {

class CpuMixers;
class Engine;
class MixerKinds;
class WeightSource;
struct ModelOptions;
struct StackPlan;

// Makes an engine for a valid plan and weights that passed CheckWeights; the source is not needed afterwards. Naming a
// factory links its device: a program that names none of a device's has none of it.
using EngineFactory = absl::StatusOr<std::unique_ptr<Engine>> (*)(const StackPlan& plan, const WeightSource& weights,
                                                                  const ModelOptions& options);

struct ModelOptions {
  WeightType weights = WeightType::kAsStored;
  DType state = DType::kF32;  // of readout rows and windows: kF32, kBF16, or kI8 for rows of integers
  // Linear recurrences (RWKV-7, delta rules) take long pieces of a prompt in chunks, as products of matrices. Given up
  // for it: results are the same up to rounding, no longer to the bit, however tokens are cut into calls and whatever
  // other sequences are in a batch. The number of threads still changes no bit, nor does a token what comes before it.
  bool chunked_recurrences = false;
  // KVM states record the row that every token went to, four bytes for a token and key/value head. Changes no result.
  bool provenance = false;
  // The kinds of mixer that the stack may have (mixer_kind.h), and how the CPU computes them (cpu_mixers.h). Null:
  // those that come with the library. Both outlive the model.
  const MixerKinds* kinds = nullptr;
  const CpuMixers* cpu_mixers = nullptr;
  // What computes (kvm/model/engine/engine.h). Null: the processor (kvm/model/cpu/cpu_engine.h).
  EngineFactory engine = nullptr;
};

// The dtype of windows and caches of uncompressed keys and values beside state rows of dtype `state`: integers are for
// rows, which every query reads and which are many; what is still to be merged stays precise.
inline DType WindowDType(DType state) { return state == DType::kI8 ? DType::kBF16 : state; }

}  // namespace kvm

#endif  // KVM_MODEL_STACK_MODEL_OPTIONS_H_
