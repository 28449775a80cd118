#include "testing/example_mixer/ema_mixer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/weights/weight_source.h"
#include "nlohmann/json.hpp"

namespace kvm {
namespace {

constexpr int64_t kWidth = 6;
constexpr int64_t kChannels = 70;  // one block of channels and a part of another
constexpr int64_t kTokens = 40;

// Numbers in −1 to 1, the same on every machine.
std::vector<float> Noise(int64_t count, uint64_t seed) {
  std::vector<float> numbers(count);
  uint64_t state = seed * 2654435761u + 1;
  for (float& number : numbers) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    number = static_cast<float>(static_cast<int64_t>(state >> 40)) / (1 << 23) - 1;
  }
  return numbers;
}

// Weights that are given.
class GivenWeights : public WeightSource {
 public:
  void Add(const std::string& name, Shape shape, const std::vector<float>& values) {
    Tensor& tensor = tensors_[name];
    tensor = Tensor::FromFloats(std::move(shape), values);
    views_[name] = tensor.view();
  }

  std::string Description() const override { return "given weights"; }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, view] : views_) names.push_back(name);
    return names;
  }
  const TensorView* Find(absl::string_view name) const override {
    const auto found = views_.find(std::string(name));
    return found == views_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, TensorView> views_;
};

// A mixer, its weights as they are, and a way to run it.
class Subject {
 public:
  // Every parameter is noise.
  Subject() {
    spec_.set_channels(kChannels);
    std::vector<Parameter> parameters;
    AppendDecayAverageParameters(spec_, {0, 1, kWidth}, "", &parameters);
    for (const Parameter& parameter : parameters) {
      const int64_t count = NumElements(parameter.shape);
      weights_.Add(parameter.name, parameter.shape, Noise(count, static_cast<uint64_t>(count)));
    }
    mixer_ = NewDecayAverageMixer(spec_, kWidth, LayerWeights(weights_, "", WeightType::kF32));
  }

  const Mixer& mixer() const { return *mixer_; }
  const DecayAverageSpec& spec() const { return spec_; }
  std::vector<float> Weight(absl::string_view name) const { return ReadFloats(*weights_.Find(name)); }

  // Extends one sequence by the rows of `x` [n, kWidth], cut into pieces of which the last repeats.
  std::vector<float> Run(const std::vector<float>& x, MixerState* state, const std::vector<int64_t>& pieces = {kTokens},
                         int threads = 2) const {
    ExecutionContext context(threads, /*oversubscribe=*/true);
    const int64_t n = static_cast<int64_t>(x.size()) / kWidth;
    std::vector<float> out(x.size());
    size_t piece = 0;
    for (int64_t begin = 0; begin < n; piece = std::min(piece + 1, pieces.size() - 1)) {
      const int64_t count = std::min(pieces[piece], n - begin);
      mixer_->Extend({x.data() + begin * kWidth, count, kWidth}, {}, {{0, count, begin, state}},
                     {out.data() + begin * kWidth, count, kWidth}, context);
      begin += count;
    }
    return out;
  }

 private:
  DecayAverageSpec spec_;
  GivenWeights weights_;
  std::unique_ptr<Mixer> mixer_;
};

std::vector<float> Exported(const MixerState& state) {
  const std::vector<NamedTensor> tensors = state.Export();
  EXPECT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0].name, "decay_average");
  return ReadFloats(tensors[0].tensor.view());
}

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_TRUE(a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// However the tokens are cut, outputs and state are the same.
void ExpectSameBitsInPieces(const Subject& subject) {
  const std::vector<float> x = Noise(kTokens * kWidth, 1);
  const std::unique_ptr<MixerState> whole = subject.mixer().NewState();
  const std::vector<float> expected = subject.Run(x, whole.get());
  for (const std::vector<int64_t>& pieces : std::vector<std::vector<int64_t>>{{1}, {7}, {20, 1}, {1, 38}, {3, 17, 2}}) {
    const std::unique_ptr<MixerState> state = subject.mixer().NewState();
    ExpectSameBits(subject.Run(x, state.get(), pieces), expected);
    ExpectSameBits(Exported(*state), Exported(*whole));
  }
}

void ExpectSameBitsWithThreads(const Subject& subject) {
  const std::vector<float> x = Noise(kTokens * kWidth, 2);
  const std::unique_ptr<MixerState> alone = subject.mixer().NewState();
  const std::vector<float> expected = subject.Run(x, alone.get(), {11}, 1);
  for (const int threads : {2, 3, 8}) {
    const std::unique_ptr<MixerState> state = subject.mixer().NewState();
    ExpectSameBits(subject.Run(x, state.get(), {11}, threads), expected);
  }
}

// Sequences of different lengths in one call, some of them with a past.
void ExpectSameBitsBesideNeighbours(const Subject& subject) {
  const std::vector<int64_t> lengths = {1, 17, 3, 19};
  const std::vector<float> x = Noise(kTokens * kWidth, 3);
  const std::vector<float> past = Noise(5 * kWidth, 4);
  std::vector<std::unique_ptr<MixerState>> states;
  std::vector<SequenceRows> rows;
  int64_t first_row = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    states.push_back(subject.mixer().NewState());
    const bool has_past = i % 2 == 1;
    if (has_past) subject.Run(past, states.back().get());
    rows.push_back({first_row, lengths[i], has_past ? 5 : 0, states.back().get()});
    first_row += lengths[i];
  }
  ASSERT_EQ(first_row, kTokens);
  std::vector<float> out(x.size());
  ExecutionContext context(2);
  subject.mixer().Extend({x.data(), kTokens, kWidth}, {}, rows, {out.data(), kTokens, kWidth}, context);

  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto of_sequence = [&](const std::vector<float>& all) {
      const float* const begin = all.data() + rows[i].first_row * kWidth;
      return std::vector<float>(begin, begin + lengths[i] * kWidth);
    };
    const std::unique_ptr<MixerState> alone = subject.mixer().NewState();
    if (i % 2 == 1) subject.Run(past, alone.get());
    ExpectSameBits(of_sequence(out), subject.Run(of_sequence(x), alone.get()));
    ExpectSameBits(Exported(*states[i]), Exported(*alone));
  }
}

// A clone goes on as its original would, and neither notices the other.
void ExpectForksAreIndependent(const Subject& subject) {
  const std::vector<float> begin = Noise(9 * kWidth, 5), one = Noise(4 * kWidth, 6), other = Noise(4 * kWidth, 7);
  const std::unique_ptr<MixerState> original = subject.mixer().NewState();
  subject.Run(begin, original.get());
  const std::unique_ptr<MixerState> fork = original->Clone();
  ExpectSameBits(Exported(*fork), Exported(*original));
  const std::vector<float> of_fork = subject.Run(other, fork.get());
  const std::vector<float> of_original = subject.Run(one, original.get());

  const std::unique_ptr<MixerState> never_forked = subject.mixer().NewState();
  subject.Run(begin, never_forked.get());
  ExpectSameBits(subject.Run(one, never_forked.get()), of_original);
  EXPECT_NE(of_fork, of_original);
}

// A changed token changes its own output and none before it.
void ExpectCausality(const Subject& subject) {
  const std::vector<float> x = Noise(kTokens * kWidth, 8);
  const std::unique_ptr<MixerState> state = subject.mixer().NewState();
  const std::vector<float> expected = subject.Run(x, state.get());
  for (const int64_t changed : {int64_t{0}, int64_t{1}, int64_t{17}, kTokens - 1}) {
    std::vector<float> others = x;
    others[changed * kWidth] += 1;
    const std::unique_ptr<MixerState> fresh = subject.mixer().NewState();
    const std::vector<float> out = subject.Run(others, fresh.get());
    const auto rows = [](const std::vector<float>& all, int64_t first, int64_t count) {
      return std::vector<float>(all.begin() + first * kWidth, all.begin() + (first + count) * kWidth);
    };
    ExpectSameBits(rows(out, 0, changed), rows(expected, 0, changed));
    EXPECT_NE(rows(out, changed, 1), rows(expected, changed, 1));
  }
}

// At every position the state is as large as predicted.
void ExpectPredictedStateSize(const Subject& subject) {
  const std::unique_ptr<MixerState> state = subject.mixer().NewState();
  for (int64_t position = 0; position < 5; ++position) {
    EXPECT_EQ(state->ByteSize(), DecayAverageStateSize(subject.spec(), kWidth).bytes) << position;
    EXPECT_EQ(state->ByteSize(), static_cast<int64_t>(Exported(*state).size() * sizeof(float))) << position;
    subject.Run(Noise(kWidth, 9), state.get());
  }
}

TEST(DecayAverage, KeepsTheMixersPromises) {
  const Subject subject;
  ExpectSameBitsInPieces(subject);
  ExpectSameBitsWithThreads(subject);
  ExpectSameBitsBesideNeighbours(subject);
  ExpectForksAreIndependent(subject);
  ExpectCausality(subject);
  ExpectPredictedStateSize(subject);
}

TEST(DecayAverage, AgreesWithDoublePrecision) {
  const Subject subject;
  const std::vector<float> x = Noise(kTokens * kWidth, 10);
  const std::vector<float> value = subject.Weight("value.weight"), decay = subject.Weight("decay"),
                           output = subject.Weight("output.weight");
  const std::unique_ptr<MixerState> state = subject.mixer().NewState();
  const std::vector<float> out = subject.Run(x, state.get(), {13, 1});
  std::vector<double> s(kChannels);
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t c = 0; c < kChannels; ++c) {
      double v = 0;
      for (int64_t i = 0; i < kWidth; ++i) v += static_cast<double>(value[c * kWidth + i]) * x[t * kWidth + i];
      const double kept = 1 / (1 + std::exp(-static_cast<double>(decay[c])));
      s[c] = kept * s[c] + (1 - kept) * v;
    }
    for (int64_t i = 0; i < kWidth; ++i) {
      double expected = 0;
      for (int64_t c = 0; c < kChannels; ++c) expected += output[i * kChannels + c] * s[c];
      // A sum of 70 products of numbers below 1 in float32.
      ASSERT_NEAR(out[t * kWidth + i], expected, 2e-5) << t << ", " << i;
    }
  }
}

TEST(DecayAverage, HalvesByHand) {
  GivenWeights weights;
  weights.Add("value.weight", {1, 1}, {2});
  weights.Add("decay", {1}, {0});  // σ(0) = 1/2
  weights.Add("output.weight", {1, 1}, {10});
  const std::unique_ptr<Mixer> mixer =
      NewDecayAverageMixer(DecayAverageSpec(), 1, LayerWeights(weights, "", WeightType::kF32));
  const std::unique_ptr<MixerState> state = mixer->NewState();
  const std::vector<float> x = {1, 0, -2};
  std::vector<float> out(3);
  ExecutionContext context(1);
  mixer->Extend({x.data(), 3, 1}, {}, {{0, 3, 0, state.get()}}, {out.data(), 3, 1}, context);
  // Values 2, 0, −4; averages 1, 1/2, −7/4.
  EXPECT_EQ(out, (std::vector<float>{10, 5, -17.5}));
  EXPECT_EQ(Exported(*state), (std::vector<float>{-1.75}));
  mixer->AnchorValues({x.data(), 3, 1}, {}, {out.data(), 3, 1}, context);
  EXPECT_EQ(out, (std::vector<float>{2, 0, -4}));
}

TEST(DecayAverage, NewChannelsRememberOverManyLengths) {
  DecayAverageSpec spec;
  spec.set_channels(3);
  spec.set_longest_memory(128);
  std::vector<Parameter> parameters;
  AppendDecayAverageParameters(spec, {0, 1, kWidth}, "attn.", &parameters);
  ASSERT_EQ(parameters.size(), 3u);
  EXPECT_EQ(parameters[0].name, "attn.value.weight");
  EXPECT_EQ(parameters[0].shape, (Shape{3, kWidth}));
  EXPECT_TRUE(parameters[2].is_block_output);
  // Memories of 2, 16 and 128 tokens: factors 1/2, 15/16 and 127/128.
  const double factors[] = {0.5, 0.9375, 0.9921875};
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(1 / (1 + std::exp(-parameters[1].initialization.value(i))), factors[i], 1e-12) << i;
  }
}

TEST(DecayAverage, NamesBadFields) {
  DecayAverageSpec spec;
  EXPECT_TRUE(FindDecayAverageProblems(spec, "m").empty());
  spec.set_channels(0);
  spec.set_longest_memory(std::nan(""));
  const std::vector<StackProblem> problems = FindDecayAverageProblems(spec, "mixers[0].decay_average");
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].path, "mixers[0].decay_average.channels");
  EXPECT_EQ(problems[0].got, "0");
  EXPECT_EQ(problems[0].expected, "a whole number from 1 to 16777216");
  EXPECT_EQ(problems[1].path, "mixers[0].decay_average.longest_memory");
  spec.set_longest_memory(1.5);
  EXPECT_EQ(FindDecayAverageProblems(spec, "m").size(), 2u);
}

TEST(DecayAverage, ReadsItsConfig) {
  const nlohmann::json plain = nlohmann::json::parse("{}");
  JsonFields defaults(plain);
  EXPECT_EQ(DecayAverageChannels(ReadDecayAverage(&defaults), 768), 768);
  const nlohmann::json json =
      nlohmann::json::parse(R"({"decay_average_channels": 12, "decay_average_longest_memory": 64})");
  JsonFields fields(json);
  const DecayAverageSpec spec = ReadDecayAverage(&fields);
  EXPECT_EQ(spec.channels(), 12);
  EXPECT_EQ(spec.longest_memory(), 64);
  EXPECT_TRUE(fields.Check("config.json").ok());
  const nlohmann::json wrong = nlohmann::json::parse(R"({"decay_average_channels": "many"})");
  JsonFields bad(wrong);
  ReadDecayAverage(&bad);
  EXPECT_FALSE(bad.Check("config.json").ok());
}

}  // namespace
}  // namespace kvm
