#include "testing/example_mixer/ema_mixer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvm/kernels/cpu/matmul.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/tensor.h"

namespace kvm {
namespace {

constexpr int64_t kMaxChannels = int64_t{1} << 24;
constexpr double kMinMemory = 2, kMaxMemory = 1e9;
// Channels that a thread takes at a time.
constexpr int64_t kChannelBlock = 64;

// What the mixer remembers of one sequence: s, one number a channel.
class DecayAverageState : public MixerState {
 public:
  explicit DecayAverageState(int64_t channels) : averages(channels) {}

  std::unique_ptr<MixerState> Clone() const override { return std::make_unique<DecayAverageState>(*this); }
  int64_t ByteSize() const override { return static_cast<int64_t>(averages.size() * sizeof(float)); }
  // "averages" [C].
  void Save(const StateWriter& out) const override { out.Floats("averages", averages); }
  absl::Status Restore(const StateReader& in, int64_t) override {
    return in.Floats("averages", absl::MakeSpan(averages));
  }
  // decay_average [C].
  std::vector<NamedTensor> Export() const override {
    std::vector<NamedTensor> tensors;
    tensors.push_back({"decay_average", Tensor::FromFloats({static_cast<int64_t>(averages.size())}, averages)});
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

class DecayAverageMixer : public Mixer {
 public:
  DecayAverageMixer(const DecayAverageSpec& spec, int64_t width, const LayerWeights& weights)
      : channels_(DecayAverageChannels(spec, width)),
        value_(weights.Matrix("value.weight")),
        output_(weights.Matrix("output.weight")),
        rates_(weights.Vector("decay")) {
    for (float& rate : rates_) rate = 1 / (1 + std::exp(rate));
  }

  std::unique_ptr<MixerState> NewState() const override { return std::make_unique<DecayAverageState>(channels_); }
  void Extend(MatrixView<const float> x, MatrixView<const float> anchor, absl::Span<const SequenceRows> sequences,
              MatrixView<float> out, ExecutionContext& context) const override;
  void AnchorValues(MatrixView<const float> x0, absl::Span<const AnchorRows>, MatrixView<float> out,
                    ExecutionContext& context) const override {
    MatMul(x0, value_, out, context.pool);
  }
  int64_t value_width() const override { return channels_; }
  int64_t WeightByteSize() const override { return value_.byte_size() + output_.byte_size(); }

 private:
  int64_t channels_;
  PackedMatrix value_, output_;
  std::vector<float> rates_;  // 1 − decay
};

void DecayAverageMixer::Extend(MatrixView<const float> x, MatrixView<const float>,
                               absl::Span<const SequenceRows> sequences, MatrixView<float> out,
                               ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  const MatrixView<float> values = context.scratch.Matrix(x.rows, channels_);
  const MatrixView<float> averages = context.scratch.Matrix(x.rows, channels_);
  // All sequences at once: a row's product does not depend on the rows beside it.
  MatMul(x, value_, values, context.pool);

  // One task for each sequence and block of channels. Threads share out channels, never the sum over tokens.
  const int64_t blocks = (channels_ + kChannelBlock - 1) / kChannelBlock;
  context.pool.ParallelFor(static_cast<int64_t>(sequences.size()) * blocks, [&](int64_t task) {
    const SequenceRows& s = sequences[task / blocks];
    const int64_t first = task % blocks * kChannelBlock;
    const int64_t count = std::min(kChannelBlock, channels_ - first);
    float* const state = static_cast<DecayAverageState*>(s.state)->averages.data();
    Average(values.Rows(s.first_row, s.num_tokens).Cols(first, count), rates_.data() + first, state + first,
            averages.Rows(s.first_row, s.num_tokens).Cols(first, count));
  });
  MatMul(averages, output_, out, context.pool);
}

}  // namespace

int64_t DecayAverageChannels(const DecayAverageSpec& spec, int64_t width) {
  return spec.has_channels() ? spec.channels() : width;
}

std::vector<StackProblem> FindDecayAverageProblems(const DecayAverageSpec& spec, const std::string& path) {
  std::vector<StackProblem> problems;
  if (spec.has_channels() && (spec.channels() < 1 || spec.channels() > kMaxChannels)) {
    problems.push_back({absl::StrCat(path, ".channels"), absl::StrCat(spec.channels()),
                        absl::StrCat("a whole number from 1 to ", kMaxChannels)});
  }
  // Written so that NaN is refused.
  if (!(spec.longest_memory() >= kMinMemory && spec.longest_memory() <= kMaxMemory)) {
    problems.push_back({absl::StrCat(path, ".longest_memory"), absl::StrCat(spec.longest_memory()),
                        absl::StrCat("a number from ", kMinMemory, " to ", kMaxMemory)});
  }
  return problems;
}

void AppendDecayAverageParameters(const DecayAverageSpec& spec, const LayerPlace& place, const std::string& prefix,
                                  std::vector<Parameter>* parameters) {
  const int64_t channels = DecayAverageChannels(spec, place.width);
  // Channel i forgets with a factor of 1 − 1/m a token: it remembers about m tokens.
  const double ratio = spec.longest_memory() / kMinMemory;
  const auto decay = [channels, ratio](int64_t i) {
    const double depth = channels == 1 ? 0.0 : static_cast<double>(i) / static_cast<double>(channels - 1);
    return std::log(kMinMemory * std::pow(ratio, depth) - 1);
  };
  parameters->push_back({prefix + "value.weight", {channels, place.width}, Initialization::Orthogonal(1), false});
  parameters->push_back({prefix + "decay", {channels}, Initialization::Values(decay), false});
  parameters->push_back({prefix + "output.weight", {place.width, channels}, Initialization::Orthogonal(1), true});
}

StateSize DecayAverageStateSize(const DecayAverageSpec& spec, int64_t width) {
  StateSize size;
  size.bytes = DecayAverageChannels(spec, width) * static_cast<int64_t>(sizeof(float));
  return size;
}

DecayAverageSpec ReadDecayAverage(JsonFields* fields) {
  DecayAverageSpec spec;
  const std::optional<int32_t> channels = fields->OptionalWhole("decay_average_channels");
  if (channels.has_value()) spec.set_channels(*channels);
  spec.set_longest_memory(fields->Number("decay_average_longest_memory", spec.longest_memory()));
  return spec;
}

std::unique_ptr<Mixer> NewDecayAverageMixer(const DecayAverageSpec& spec, int64_t width, const LayerWeights& weights) {
  return std::make_unique<DecayAverageMixer>(spec, width, weights);
}

}  // namespace kvm
