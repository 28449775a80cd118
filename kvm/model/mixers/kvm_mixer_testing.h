#ifndef KVM_MODEL_MIXERS_KVM_MIXER_TESTING_H_
#define KVM_MODEL_MIXERS_KVM_MIXER_TESTING_H_

// One KVM layer with random weights, for tests.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/engine/state_size.h"
#include "kvm/model/mixers/kvm_mixer.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

inline constexpr int64_t kTestWidth = 32;
inline constexpr int64_t kTestChunk = 8;
inline constexpr int64_t kTestTokens = 6 * kTestChunk + 3;

// Four query heads on two key/value heads of 8 and 6 channels, four of them with rotary embedding.
inline constexpr char kTestHeads[] =
    "projections { num_heads: 4 num_kv_heads: 2 qk_head_dim: 8 v_head_dim: 6 rotary_dim: 4 value_residual: NONE } ";

// Chunks of 8 and whatever `text` says.
inline MixerSpec KvmLayerSpec(const std::string& text) {
  const absl::StatusOr<StackSpec> stack = ParseStackSpec(
      absl::StrCat("vocab_size: 8 width: ", kTestWidth,
                   " layers: \"m\" mixers { name: \"m\" kvm { chunk_len: ", kTestChunk, " ", text, " } }"),
      "spec");
  EXPECT_TRUE(stack.ok()) << stack.status();
  return stack.ok() ? stack->mixers(0) : MixerSpec();
}

class RandomMixerWeights : public WeightSource {
 public:
  explicit RandomMixerWeights(const MixerSpec& spec) {
    std::vector<Parameter> parameters;
    BuiltinMixerKinds().Of(spec).append_parameters(spec, {0, 1, kTestWidth}, "", &parameters);
    std::mt19937 random(5);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (const Parameter& parameter : parameters) {
      // Matrices keep the scale of what they multiply; vectors lie around 1, biases around 0.
      const bool is_matrix = parameter.shape.size() == 2;
      const bool is_bias = parameter.name.find("bias") != std::string::npos;
      std::vector<float> values(NumElements(parameter.shape));
      for (float& v : values) {
        v = uniform(random);
        v = is_matrix ? v * std::sqrt(3.0f / static_cast<float>(parameter.shape[1])) : (is_bias ? 0 : 1) + 0.3f * v;
      }
      tensors_[parameter.name] = Tensor::FromFloats(parameter.shape, values);
    }
    for (const auto& [name, tensor] : tensors_) views_[name] = tensor.view();
  }

  std::string Description() const override { return "random weights"; }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
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

// What a layer made of the test's tokens.
struct KvmOutcome {
  std::vector<float> out;          // [kTestTokens, kTestWidth]
  std::vector<NamedTensor> state;  // behind the last token
  int64_t num_rows = 0;
  int64_t byte_size = 0;

  const Tensor& Get(const std::string& name) const {
    for (const NamedTensor& t : state) {
      if (t.name == name) return t.tensor;
    }
    ADD_FAILURE() << "no " << name;
    static const Tensor* const kNone = new Tensor();
    return *kNone;
  }
  bool Has(const std::string& name) const {
    return std::any_of(state.begin(), state.end(), [&](const NamedTensor& t) { return t.name == name; });
  }
};

inline std::vector<float> TestInputs() {
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  std::vector<float> x(kTestTokens * kTestWidth);
  for (float& e : x) e = normal(random);
  return x;
}

class KvmLayer {
 public:
  explicit KvmLayer(const std::string& text, DType state = DType::kF32, bool provenance = false)
      : spec(KvmLayerSpec(text)), state_dtype(state), weights(spec) {
    mixer = NewKvmMixer(spec.kvm(), kTestWidth, StackSpec::FLOAT32, LayerWeights(weights, "", WeightType::kF32), state,
                        provenance);
  }

  // All tokens, in pieces of these lengths over and over.
  KvmOutcome Run(const std::vector<int64_t>& pieces = {kTestTokens}, int num_threads = 1) const {
    const std::vector<float> x = TestInputs();
    KvmOutcome outcome;
    outcome.out.resize(x.size());
    ExecutionContext context(num_threads, /*oversubscribe=*/true);
    const std::unique_ptr<MixerState> state = mixer->NewState();
    int64_t position = 0;
    for (size_t i = 0; position < kTestTokens; ++i) {
      const int64_t count = std::min(pieces[i % pieces.size()], kTestTokens - position);
      const MatrixView<const float> rows(x.data() + position * kTestWidth, count, kTestWidth);
      const SequenceRows sequence = {0, count, position, state.get()};
      mixer->Extend(rows, {}, {&sequence, 1}, {outcome.out.data() + position * kTestWidth, count, kTestWidth}, context);
      position += count;
    }
    outcome.state = state->Export();
    outcome.num_rows = state->NumRows();
    outcome.byte_size = state->ByteSize();
    return outcome;
  }

  StateSize Size() const { return MixerStateSize(spec, kTestWidth, state_dtype, kTestTokens); }

  MixerSpec spec;
  DType state_dtype;
  RandomMixerWeights weights;
  std::unique_ptr<Mixer> mixer;
};

// The same outputs and the same state, to the bit.
inline void ExpectSameBits(const KvmOutcome& a, const KvmOutcome& b) {
  EXPECT_EQ(a.out, b.out);
  ASSERT_EQ(a.state.size(), b.state.size());
  for (size_t i = 0; i < a.state.size(); ++i) {
    EXPECT_EQ(a.state[i].name, b.state[i].name);
    ASSERT_EQ(a.state[i].tensor.shape(), b.state[i].tensor.shape()) << a.state[i].name;
    if (a.state[i].tensor.dtype() == DType::kF32) {
      EXPECT_EQ(a.state[i].tensor.floats(), b.state[i].tensor.floats()) << a.state[i].name;
    } else {
      EXPECT_EQ(a.state[i].tensor.ints(), b.state[i].tensor.ints()) << a.state[i].name;
    }
  }
}

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_KVM_MIXER_TESTING_H_
