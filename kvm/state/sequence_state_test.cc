#include "kvm/state/sequence_state.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/state/host_layer_state.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

// Remembers one number.
class NumberState : public MixerState {
 public:
  explicit NumberState(int number) : number(number) {}
  std::unique_ptr<MixerState> Clone() const override { return std::make_unique<NumberState>(number); }
  int64_t ByteSize() const override { return sizeof(number); }
  void Save(const StateWriter& out) const override { out.Tensor("number", DType::kI32, {}, &number); }
  absl::Status Restore(const StateReader& in, int64_t position) override {
    restored_at = position;
    return in.Tensor("number", DType::kI32, {}, &number);
  }
  std::vector<NamedTensor> Export() const override {
    std::vector<NamedTensor> tensors;
    tensors.push_back({"number", Tensor::FromInts({}, {number})});
    return tensors;
  }

  int32_t number;
  int64_t restored_at = 0;
};

CopyOnWrite<MixerState> Number(int number) { return CopyOnWrite<MixerState>(std::make_unique<NumberState>(number)); }

const NumberState& StateOf(const SequenceState& state, int64_t layer) {
  return static_cast<const NumberState&>(*HostLayer(state, layer).mixer);
}
int NumberOf(const SequenceState& state, int64_t layer) { return StateOf(state, layer).number; }
void SetNumber(SequenceState& state, int64_t layer, int number) {
  static_cast<NumberState&>(HostLayer(state, layer).mixer.Mutable()).number = number;
}

SequenceState TwoLayers() {
  std::vector<HostLayerState> layers(2);
  layers[0].mixer = Number(5);
  layers[0].mlp_shift = {1, 2, 3};
  layers[1].mixer = Number(6);
  layers[1].anchor_shift = {4, 5};
  return NewHostSequence(/*stack_id=*/42, std::move(layers));
}

// The same stack, nothing taken in.
SequenceState NewTwoLayers() {
  std::vector<HostLayerState> layers(2);
  layers[0].mixer = Number(0);
  layers[0].mlp_shift.resize(3);
  layers[1].mixer = Number(0);
  layers[1].anchor_shift.resize(2);
  return NewHostSequence(/*stack_id=*/42, std::move(layers));
}

StateFields FieldsOf(const SequenceState& state) {
  StateFields fields;
  EXPECT_TRUE(state.Save(StateWriter(&fields)).ok());
  return fields;
}

TEST(SequenceStateTest, EmptyStateStandsAtZeroAndHoldsNothing) {
  const SequenceState state;
  EXPECT_EQ(state.position(), 0);
  EXPECT_EQ(state.num_layers(), 0);
  EXPECT_EQ(state.ByteSize(), 0);
  EXPECT_EQ(state.Fork().num_layers(), 0);
}

TEST(SequenceStateTest, ByteSizeAddsMixersAndShifts) { EXPECT_EQ(TwoLayers().ByteSize(), 4 + 12 + 4 + 8); }

TEST(SequenceStateTest, LayersWithoutMemoryOfTheirOwnTakeNoBytes) {
  const SequenceState state = NewHostSequence(1, std::vector<HostLayerState>(3));
  EXPECT_EQ(state.ByteSize(), 0);
  EXPECT_EQ(state.Fork().num_layers(), 3);
}

TEST(SequenceStateTest, ForkIsEqualAtFirst) {
  SequenceState state = TwoLayers();
  SequenceAccess::EndPass(state, 7);
  SequenceState fork = state.Fork();
  EXPECT_EQ(fork.position(), 7);
  EXPECT_EQ(fork.stack_id(), 42);
  EXPECT_EQ(fork.num_layers(), 2);
  EXPECT_EQ(fork.ByteSize(), state.ByteSize());
  EXPECT_EQ(NumberOf(fork, 0), 5);
  EXPECT_EQ(NumberOf(fork, 1), 6);
  EXPECT_EQ(HostLayer(fork, 0).mlp_shift, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(HostLayer(fork, 1).anchor_shift, (std::vector<float>{4, 5}));
}

TEST(SequenceStateTest, ExportNamesEveryTensorByItsLayer) {
  SequenceState state = TwoLayers();
  SequenceAccess::EndPass(state, 7);
  std::vector<std::string> names;
  const std::vector<NamedTensor> tensors = state.Export().value();
  for (const NamedTensor& t : tensors) names.push_back(t.name);
  EXPECT_EQ(names, (std::vector<std::string>{"cache.0.number", "cache.0.mlp_final_token", "cache.0.seen_tokens",
                                             "cache.1.number", "cache.1.anchor_final_token", "cache.1.seen_tokens"}));
  EXPECT_EQ(state.Export().value()[2].tensor.ints()[0], 7);
  EXPECT_EQ(state.Export().value()[1].tensor.shape(), (Shape{1, 3}));
}

TEST(SequenceStateTest, ForkAndOriginalAreIndependent) {
  SequenceState state = TwoLayers();
  SequenceState fork = state.Fork();
  SetNumber(fork, 0, 99);
  HostLayer(fork, 0).mlp_shift[0] = 99;
  SequenceAccess::EndPass(fork, 3);
  EXPECT_EQ(NumberOf(state, 0), 5);
  EXPECT_EQ(HostLayer(state, 0).mlp_shift[0], 1);
  EXPECT_EQ(state.position(), 0);
  SetNumber(state, 1, 77);
  EXPECT_EQ(NumberOf(fork, 1), 6);
}

TEST(SequenceStateTest, ForkSharesEachLayerUntilItIsWrittenTo) {
  SequenceState state = TwoLayers();
  SequenceState fork = state.Fork();
  EXPECT_EQ(HostLayer(state, 0).mixer.get(), HostLayer(fork, 0).mixer.get());
  SetNumber(fork, 0, 99);
  EXPECT_NE(HostLayer(state, 0).mixer.get(), HostLayer(fork, 0).mixer.get());
  EXPECT_EQ(HostLayer(state, 1).mixer.get(), HostLayer(fork, 1).mixer.get());
}

TEST(SequenceStateTest, FieldsAreNamedByLayer) {
  SequenceState state = TwoLayers();
  SequenceAccess::EndPass(state, 7);
  const StateFields fields = FieldsOf(state);
  ASSERT_EQ(fields.numbers.size(), 1u);
  EXPECT_EQ(fields.numbers[0].name, "position");
  EXPECT_EQ(fields.numbers[0].value, 7);
  std::vector<std::string> names;
  for (const StateTensor& tensor : fields.tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, ::testing::ElementsAre("layer.0.mixer.number", "layer.0.mlp_shift", "layer.1.mixer.number",
                                            "layer.1.anchor_shift"));
  EXPECT_EQ(fields.ByteSize(), state.ByteSize());
}

TEST(SequenceStateTest, RestoreTakesOverWhatWasSaved) {
  SequenceState state = TwoLayers();
  SequenceAccess::EndPass(state, 7);
  const StateFields fields = FieldsOf(state);
  SequenceState restored = NewTwoLayers();
  const StateReader in(fields);
  ASSERT_TRUE(restored.Restore(in).ok());
  EXPECT_TRUE(in.Finish().ok());
  EXPECT_EQ(restored.position(), 7);
  EXPECT_EQ(NumberOf(restored, 0), 5);
  EXPECT_EQ(NumberOf(restored, 1), 6);
  EXPECT_EQ(StateOf(restored, 1).restored_at, 7);
  EXPECT_EQ(HostLayer(restored, 0).mlp_shift, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(HostLayer(restored, 1).anchor_shift, (std::vector<float>{4, 5}));
}

TEST(SequenceStateTest, RestoreNamesWhatIsMissingOrCannotBe) {
  const SequenceState state = TwoLayers();
  for (const char* const name : {"position", "layer.0.mixer.number", "layer.0.mlp_shift", "layer.1.anchor_shift"}) {
    StateFields fields = FieldsOf(state);
    if (fields.numbers[0].name == name) fields.numbers.clear();
    for (auto tensor = fields.tensors.begin(); tensor != fields.tensors.end(); ++tensor) {
      if (tensor->name != name) continue;
      fields.tensors.erase(tensor);
      break;
    }
    const absl::Status status = NewTwoLayers().Restore(StateReader(fields));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  }
  for (const int64_t position : {int64_t{-1}, kMaxPosition + 1}) {
    StateFields fields = FieldsOf(state);
    fields.numbers[0].value = position;
    const absl::Status status = NewTwoLayers().Restore(StateReader(fields));
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(position)));
  }
}

TEST(SequenceStateTest, FieldsOfMoreLayersAreLeftOver) {
  const SequenceState state = TwoLayers();
  const StateFields fields = FieldsOf(state);
  std::vector<HostLayerState> layers(1);
  layers[0].mixer = Number(0);
  layers[0].mlp_shift.resize(3);
  SequenceState smaller = NewHostSequence(1, std::move(layers));
  const StateReader in(fields);
  EXPECT_TRUE(smaller.Restore(in).ok());
  EXPECT_THAT(std::string(in.Finish().message()), HasSubstr("layer.1.mixer.number"));
}

TEST(SequenceStateTest, APassThatDoesNotEndLeavesItBrokenAndItsForksToo) {
  SequenceState state = TwoLayers();
  SequenceAccess::EndPass(state, 7);
  EXPECT_FALSE(state.broken());
  SequenceAccess::BeginPass(state);
  EXPECT_TRUE(state.broken());
  EXPECT_TRUE(state.Fork().broken());
  StateFields fields;
  EXPECT_EQ(state.Save(StateWriter(&fields)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(state.Export().status().message()), HasSubstr("half changed"));
  EXPECT_THAT(std::string(state.CheckWhole().message()), HasSubstr("first 7 tokens"));
}

TEST(SequenceStateTest, ARestoreThatFailsLeavesItBroken) {
  const SequenceState saved = TwoLayers();
  StateFields fields = FieldsOf(saved);  // which show its memory
  fields.tensors.pop_back();
  SequenceState state = NewTwoLayers();
  EXPECT_FALSE(state.Restore(StateReader(fields)).ok());
  EXPECT_TRUE(state.broken());
}

}  // namespace
}  // namespace kvm
