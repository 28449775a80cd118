#include "kvm/model/mixers/new_mixer.h"

#include "kvm/model/mixers/attention_mixer.h"
#include "kvm/model/mixers/block_window_mixer.h"
#include "kvm/model/mixers/delta_net_mixer.h"
#include "kvm/model/mixers/kvm_mixer.h"
#include "kvm/model/mixers/ovq_mixer.h"
#include "kvm/model/mixers/rwkv7_mixer.h"

namespace kvm {

std::unique_ptr<Mixer> NewMixer(const MixerSpec& spec, const StackSpec& stack, const LayerWeights& weights,
                                const ModelOptions& options) {
  const DType state = spec.has_kvm() ? options.state : WindowDType(options.state);
  switch (spec.kind_case()) {
    case MixerSpec::kAttention:
      return NewAttentionMixer(spec.attention(), stack.width(), stack.rotary_table(), weights, state);
    case MixerSpec::kKvm:
      return NewKvmMixer(spec.kvm(), stack.width(), stack.rotary_table(), weights, state, options.provenance);
    case MixerSpec::kRwkv7:
      return NewRwkv7Mixer(spec.rwkv7(), stack.width(), weights, options.chunked_recurrences);
    case MixerSpec::kBlockWindow:
      return NewBlockWindowMixer(spec.block_window(), stack.width(), stack.rotary_table(), weights, state);
    case MixerSpec::kOvq:
      return NewOvqMixer(spec.ovq(), stack.width(), weights, state);
    case MixerSpec::kGatedDeltaNet:
      return NewGatedDeltaNetMixer(spec.gated_delta_net(), stack.width(), weights, options.chunked_recurrences);
    case MixerSpec::kKimiDelta:
      return NewKimiDeltaMixer(spec.kimi_delta(), stack.width(), weights, options.chunked_recurrences);
    case MixerSpec::KIND_NOT_SET:
      break;
  }
  return nullptr;  // a valid spec has a kind
}

}  // namespace kvm
