#include "decay_average/decay_average.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kvm/kernels/cpu/matmul.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/tensor.h"
#include "kvm/state/mixer_state.h"
#include "kvm/state/state_fields.h"

namespace consumer {
namespace {

using kvm::ExecutionContext;
using kvm::LayerWeights;
using kvm::MatrixView;
using kvm::MixerSpec;
using kvm::NamedTensor;

constexpr double kMinMemory = 2, kMaxMemory = 1e9;
// Channels that a thread takes at a time.
constexpr int64_t kChannelBlock = 64;

const DecayAverageSpec& SpecOf(const MixerSpec& mixer) { return mixer.GetExtension(decay_average); }
int64_t ChannelsOf(const MixerSpec& mixer, int64_t width) { return DecayAverageChannels(SpecOf(mixer), width); }

void CheckDecayAverage(const MixerSpec& mixer, int64_t, const std::string& path, kvm::StackChecker* check) {
  const DecayAverageSpec& spec = SpecOf(mixer);
  if (spec.has_channels()) check->Whole(path + ".channels", spec.channels(), 1);
  // Written so that NaN is refused.
  if (!(spec.longest_memory() >= kMinMemory && spec.longest_memory() <= kMaxMemory)) {
    check->Add(path + ".longest_memory", kvm::NumberText(spec.longest_memory()), "a number from 2 to 1e+09");
  }
}

void AppendDecayAverageParameters(const MixerSpec& mixer, const kvm::LayerPlace& place, const std::string& prefix,
                                  std::vector<kvm::Parameter>* parameters) {
  using kvm::Initialization;
  const int64_t channels = ChannelsOf(mixer, place.width);
  // Channel i forgets with a factor of 1 − 1/m a token: it remembers about m tokens.
  const double ratio = SpecOf(mixer).longest_memory() / kMinMemory;
  const auto decay = [channels, ratio](int64_t i) {
    const double depth = channels == 1 ? 0.0 : static_cast<double>(i) / static_cast<double>(channels - 1);
    return std::log(kMinMemory * std::pow(ratio, depth) - 1);
  };
  parameters->push_back({prefix + "value.weight", {channels, place.width}, Initialization::Orthogonal(1), false});
  parameters->push_back({prefix + "decay", {channels}, Initialization::Values(decay), false});
  parameters->push_back({prefix + "output.weight", {place.width, channels}, Initialization::Orthogonal(1), true});
}

// The same at every context; the state is always float32.
kvm::StateSize DecayAverageStateSize(const MixerSpec& mixer, int64_t width, const kvm::StateQuery&) {
  kvm::StateSize size;
  size.bytes = ChannelsOf(mixer, width) * static_cast<int64_t>(sizeof(float));
  return size;
}

// Three operations and one number of state a channel.
kvm::MixerCost CostOfDecayAverage(const MixerSpec& mixer, int64_t width, kvm::DType, int64_t) {
  const double channels = static_cast<double>(ChannelsOf(mixer, width));
  return {3 * channels, sizeof(float) * channels};
}

std::string DescribeDecayAverage(const MixerSpec& mixer, int64_t width) {
  return absl::StrCat("decay average, ", ChannelsOf(mixer, width), " channels");
}

// What the mixer remembers of one sequence: s, one number a channel.
class DecayAverageState : public kvm::MixerState {
 public:
  explicit DecayAverageState(int64_t channels) : averages(channels) {}

  std::unique_ptr<kvm::MixerState> Clone() const override { return std::make_unique<DecayAverageState>(*this); }
  int64_t ByteSize() const override { return static_cast<int64_t>(averages.size() * sizeof(float)); }
  // "averages" [C].
  void Save(const kvm::StateWriter& out) const override { out.Floats("averages", averages); }
  absl::Status Restore(const kvm::StateReader& in, int64_t) override {
    return in.Floats("averages", absl::MakeSpan(averages));
  }
  // decay_average [C].
  std::vector<NamedTensor> Export() const override {
    std::vector<NamedTensor> tensors;
    tensors.push_back({"decay_average", kvm::Tensor::FromFloats({static_cast<int64_t>(averages.size())}, averages)});
    return tensors;
  }

  std::vector<float> averages;
};

// s += rates ⊙ (v_t − s) and out_t = s, token by token. v, out: [n, c]; rates, s: [c].
void Average(MatrixView<const float> v, const float* rates, float* s, MatrixView<float> out) {
  for (int64_t t = 0; t < v.rows; ++t) {
    for (int64_t c = 0; c < v.cols; ++c) {
      s[c] += rates[c] * (v.row(t)[c] - s[c]);
      out.row(t)[c] = s[c];
    }
  }
}

class DecayAverageMixer : public kvm::Mixer {
 public:
  DecayAverageMixer(int64_t channels, const LayerWeights& weights)
      : channels_(channels),
        value_(weights.Matrix("value.weight")),
        output_(weights.Matrix("output.weight")),
        rates_(weights.Vector("decay")) {
    for (float& rate : rates_) rate = 1 / (1 + std::exp(rate));
  }

  std::unique_ptr<kvm::MixerState> NewState() const override { return std::make_unique<DecayAverageState>(channels_); }
  void Extend(MatrixView<const float> x, MatrixView<const float> anchor, absl::Span<const kvm::SequenceRows> sequences,
              MatrixView<float> out, ExecutionContext& context) const override;
  void AnchorValues(MatrixView<const float> x0, absl::Span<const kvm::AnchorRows>, MatrixView<float> out,
                    ExecutionContext& context) const override {
    kvm::MatMul(x0, value_, out, context.pool);
  }
  int64_t value_width() const override { return channels_; }
  int64_t WeightByteSize() const override { return value_.byte_size() + output_.byte_size(); }

 private:
  int64_t channels_;
  kvm::PackedMatrix value_, output_;
  std::vector<float> rates_;  // 1 − decay
};

void DecayAverageMixer::Extend(MatrixView<const float> x, MatrixView<const float>,
                               absl::Span<const kvm::SequenceRows> sequences, MatrixView<float> out,
                               ExecutionContext& context) const {
  const kvm::Scratch::Scope scope(context.scratch);
  const MatrixView<float> values = context.scratch.Matrix(x.rows, channels_);
  const MatrixView<float> averages = context.scratch.Matrix(x.rows, channels_);
  // All sequences at once: a row's product does not depend on the rows beside it.
  kvm::MatMul(x, value_, values, context.pool);

  // One task for each sequence and block of channels. Threads share out channels, never the sum over tokens.
  const int64_t blocks = (channels_ + kChannelBlock - 1) / kChannelBlock;
  context.pool.ParallelFor(static_cast<int64_t>(sequences.size()) * blocks, [&](int64_t task) {
    const kvm::SequenceRows& s = sequences[task / blocks];
    const int64_t first = task % blocks * kChannelBlock;
    const int64_t count = std::min(kChannelBlock, channels_ - first);
    float* const state = static_cast<DecayAverageState*>(s.state)->averages.data();
    Average(values.Rows(s.first_row, s.num_tokens).Cols(first, count), rates_.data() + first, state + first,
            averages.Rows(s.first_row, s.num_tokens).Cols(first, count));
  });
  kvm::MatMul(averages, output_, out, context.pool);
}

}  // namespace

int64_t DecayAverageChannels(const DecayAverageSpec& spec, int64_t width) {
  return spec.has_channels() ? spec.channels() : width;
}

const kvm::MixerKind& DecayAverageKind() {
  static const kvm::MixerKind kind = [] {
    kvm::MixerKind made;
    made.name = "decay_average";
    made.field_number = kDecayAverageFieldNumber;
    made.check = CheckDecayAverage;
    made.value_width = ChannelsOf;
    made.append_parameters = AppendDecayAverageParameters;
    made.state_size = DecayAverageStateSize;
    made.token_cost = CostOfDecayAverage;
    made.describe = DescribeDecayAverage;
    return made;
  }();
  return kind;
}

std::unique_ptr<kvm::Mixer> NewDecayAverageMixer(const MixerSpec& spec, const kvm::StackSpec& stack,
                                                 const LayerWeights& weights, const kvm::ModelOptions&) {
  return std::make_unique<DecayAverageMixer>(ChannelsOf(spec, stack.width()), weights);
}

}  // namespace consumer
