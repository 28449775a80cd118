#include "kvm/model/mixers/new_mixer.h"

#include "absl/strings/str_cat.h"
#include "kvm/base/check.h"
#include "kvm/model/mixers/cpu_mixers.h"

namespace kvm {
namespace {

const CpuMixers& CpuMixersOf(const ModelOptions& options) {
  return options.cpu_mixers == nullptr ? BuiltinCpuMixers() : *options.cpu_mixers;
}

}  // namespace

absl::Status CheckMixers(const StackSpec& stack, const ModelOptions& options) {
  for (const MixerSpec& mixer : stack.mixers()) {
    if (CpuMixersOf(options).Find(mixer) != nullptr) continue;
    return absl::UnimplementedError(absl::StrCat(
        "mixer \"", mixer.name(), "\" is of a kind that the CPU does not compute", " (kvm/model/mixers/cpu_mixers.h)"));
  }
  return absl::OkStatus();
}

std::unique_ptr<Mixer> NewMixer(const MixerSpec& spec, const StackSpec& stack, const LayerWeights& weights,
                                const ModelOptions& options) {
  const CpuMixerKind* kind = CpuMixersOf(options).Find(spec);
  Check(kind != nullptr, "a mixer of one of the kinds that the CPU computes");
  return kind->make(spec, stack, weights, options);
}

}  // namespace kvm
