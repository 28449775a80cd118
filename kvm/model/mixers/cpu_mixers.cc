#include "kvm/model/mixers/cpu_mixers.h"

#include <algorithm>

#include "kvm/model/mixers/attention_mixer.h"
#include "kvm/model/mixers/block_window_mixer.h"
#include "kvm/model/mixers/delta_net_mixer.h"
#include "kvm/model/mixers/kvm_mixer.h"
#include "kvm/model/mixers/ovq_mixer.h"
#include "kvm/model/mixers/rwkv7_mixer.h"
#include "kvm/model/stack/kinds/kinds.h"

namespace kvm {
namespace {

using NewMixerFunction = decltype(CpuMixerKind::make);

constexpr NewMixerFunction kAttention = [](const MixerSpec& spec, const StackSpec& stack, const LayerWeights& weights,
                                           const ModelOptions& options) {
  return NewAttentionMixer(spec.attention(), stack.width(), stack.rotary_table(), weights, WindowDType(options.state));
};

constexpr NewMixerFunction kKvm = [](const MixerSpec& spec, const StackSpec& stack, const LayerWeights& weights,
                                     const ModelOptions& options) {
  return NewKvmMixer(spec.kvm(), stack.width(), stack.rotary_table(), weights, options.state, options.provenance);
};

constexpr NewMixerFunction kRwkv7 = [](const MixerSpec& spec, const StackSpec& stack, const LayerWeights& weights,
                                       const ModelOptions& options) {
  return NewRwkv7Mixer(spec.rwkv7(), stack.width(), weights, options.chunked_recurrences);
};

constexpr NewMixerFunction kBlockWindow = [](const MixerSpec& spec, const StackSpec& stack, const LayerWeights& weights,
                                             const ModelOptions& options) {
  return NewBlockWindowMixer(spec.block_window(), stack.width(), stack.rotary_table(), weights,
                             WindowDType(options.state));
};

constexpr NewMixerFunction kOvq = [](const MixerSpec& spec, const StackSpec& stack, const LayerWeights& weights,
                                     const ModelOptions& options) {
  return NewOvqMixer(spec.ovq(), stack.width(), weights, WindowDType(options.state));
};

constexpr NewMixerFunction kGatedDeltaNet = [](const MixerSpec& spec, const StackSpec& stack,
                                               const LayerWeights& weights, const ModelOptions& options) {
  return NewGatedDeltaNetMixer(spec.gated_delta_net(), stack.width(), weights, options.chunked_recurrences);
};

constexpr NewMixerFunction kKimiDelta = [](const MixerSpec& spec, const StackSpec& stack, const LayerWeights& weights,
                                           const ModelOptions& options) {
  return NewKimiDeltaMixer(spec.kimi_delta(), stack.width(), weights, options.chunked_recurrences);
};

}  // namespace

CpuMixers CpuMixers::With(const CpuMixerKind& kind) const {
  std::vector<CpuMixerKind> kinds = kinds_;
  kinds.push_back(kind);
  return CpuMixers(std::move(kinds));
}

const CpuMixerKind* CpuMixers::Find(const MixerSpec& mixer) const {
  const auto found = std::find_if(kinds_.begin(), kinds_.end(),
                                  [&](const CpuMixerKind& known) { return IsOfKind(mixer, *known.kind); });
  return found == kinds_.end() ? nullptr : &*found;
}

const CpuMixers& BuiltinCpuMixers() {
  // Never destroyed, as others may be used after main().
  static const CpuMixers& mixers = *new CpuMixers({{&AttentionKind(), kAttention},
                                                   {&KvmKind(), kKvm},
                                                   {&Rwkv7Kind(), kRwkv7},
                                                   {&BlockWindowKind(), kBlockWindow},
                                                   {&OvqKind(), kOvq},
                                                   {&GatedDeltaNetKind(), kGatedDeltaNet},
                                                   {&KimiDeltaKind(), kKimiDelta}});
  return mixers;
}

}  // namespace kvm
