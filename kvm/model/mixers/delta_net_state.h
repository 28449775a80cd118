#ifndef KVM_MODEL_MIXERS_DELTA_NET_STATE_H_
#define KVM_MODEL_MIXERS_DELTA_NET_STATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/stack/delta_net_spec.h"
#include "kvm/state/mixer_state.h"
#include "kvm/state/state_fields.h"

namespace kvm {

// The raw projections that a short convolution has yet to see: [size−1, channels], latest last.
struct ConvolutionHistory {
  ConvolutionHistory() = default;
  ConvolutionHistory(int64_t rows, int64_t channels) : rows(rows), channels(channels), values(rows * channels) {}

  MatrixView<float> view() { return {values.data(), rows, channels}; }
  // As the published cache lies: [channels, size−1].
  Tensor Export() const;
  void Import(absl::Span<const float> exported);
  // `name` [size−1, channels]. Restore takes it over into a history of the same size.
  void Save(absl::string_view name, const StateWriter& out) const;
  absl::Status Restore(absl::string_view name, const StateReader& in);

  int64_t rows = 0;
  int64_t channels = 0;
  std::vector<float> values;
};

// What a layer of Gated DeltaNet or Kimi Delta Attention remembers of one sequence; zeros at the start. Always float32.
class DeltaNetState : public MixerState {
 public:
  explicit DeltaNetState(const DeltaNetSpec& spec);

  std::unique_ptr<MixerState> Clone() const override;
  int64_t ByteSize() const override;
  // "recurrent" [HV, K, V]; "conv_q", "conv_k", "conv_v" as ConvolutionHistory saves them.
  void Save(const StateWriter& out) const override;
  absl::Status Restore(const StateReader& in, int64_t position) override;
  // recurrent [HV, K, V]; conv_q, conv_k [H·K, size−1], conv_v [HV·V, size−1] where there is a convolution with a past.
  std::vector<NamedTensor> Export() const override;

  Tensor recurrent;  // S of every value head
  ConvolutionHistory conv_q, conv_k, conv_v;

 private:
  DeltaNetState() = default;
};

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_DELTA_NET_STATE_H_
