#include "kvm/state/sequence_state.h"

#include <utility>

#include "gtest/gtest.h"

namespace kvm {
namespace {

// Remembers one number and claims ten bytes for it.
class NumberState : public MixerState {
 public:
  explicit NumberState(int number) : number(number) {}
  std::unique_ptr<MixerState> Clone() const override { return std::make_unique<NumberState>(number); }
  int64_t ByteSize() const override { return 10; }
  std::vector<NamedTensor> Export() const override {
    std::vector<NamedTensor> tensors;
    tensors.push_back({"number", Tensor::FromInts({}, {number})});
    return tensors;
  }

  int number;
};

int& NumberOf(SequenceState& state, int64_t layer) {
  return static_cast<NumberState*>(state.layer(layer).mixer.get())->number;
}

SequenceState TwoLayers() {
  std::vector<LayerState> layers(2);
  layers[0].mixer = std::make_unique<NumberState>(5);
  layers[0].mlp_shift = {1, 2, 3};
  layers[1].mixer = std::make_unique<NumberState>(6);
  layers[1].anchor_shift = {4, 5};
  return SequenceState(/*stack_id=*/42, std::move(layers));
}

TEST(SequenceStateTest, EmptyStateStandsAtZeroAndHoldsNothing) {
  const SequenceState state;
  EXPECT_EQ(state.position(), 0);
  EXPECT_EQ(state.num_layers(), 0);
  EXPECT_EQ(state.ByteSize(), 0);
  EXPECT_EQ(state.Fork().num_layers(), 0);
}

TEST(SequenceStateTest, ByteSizeAddsMixersAndShifts) { EXPECT_EQ(TwoLayers().ByteSize(), 10 + 12 + 10 + 8); }

TEST(SequenceStateTest, LayersWithoutMemoryOfTheirOwnTakeNoBytes) {
  const SequenceState state(1, std::vector<LayerState>(3));
  EXPECT_EQ(state.ByteSize(), 0);
  EXPECT_EQ(state.Fork().num_layers(), 3);
}

TEST(SequenceStateTest, ForkIsEqualAtFirst) {
  SequenceState state = TwoLayers();
  state.Advance(7);
  SequenceState fork = state.Fork();
  EXPECT_EQ(fork.position(), 7);
  EXPECT_EQ(fork.stack_id(), 42);
  EXPECT_EQ(fork.num_layers(), 2);
  EXPECT_EQ(fork.ByteSize(), state.ByteSize());
  EXPECT_EQ(NumberOf(fork, 0), 5);
  EXPECT_EQ(NumberOf(fork, 1), 6);
  EXPECT_EQ(fork.layer(0).mlp_shift, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(fork.layer(1).anchor_shift, (std::vector<float>{4, 5}));
}

TEST(SequenceStateTest, ExportNamesEveryTensorByItsLayer) {
  SequenceState state = TwoLayers();
  state.Advance(7);
  std::vector<std::string> names;
  for (const NamedTensor& t : state.Export()) names.push_back(t.name);
  EXPECT_EQ(names, (std::vector<std::string>{"cache.0.number", "cache.0.mlp_final_token", "cache.0.seen_tokens",
                                             "cache.1.number", "cache.1.anchor_final_token", "cache.1.seen_tokens"}));
  EXPECT_EQ(state.Export()[2].tensor.ints()[0], 7);
  EXPECT_EQ(state.Export()[1].tensor.shape(), (Shape{1, 3}));
}

TEST(SequenceStateTest, ForkAndOriginalAreIndependent) {
  SequenceState state = TwoLayers();
  SequenceState fork = state.Fork();
  NumberOf(fork, 0) = 99;
  fork.layer(0).mlp_shift[0] = 99;
  fork.Advance(3);
  EXPECT_EQ(NumberOf(state, 0), 5);
  EXPECT_EQ(state.layer(0).mlp_shift[0], 1);
  EXPECT_EQ(state.position(), 0);
  NumberOf(state, 1) = 77;
  EXPECT_EQ(NumberOf(fork, 1), 6);
}

}  // namespace
}  // namespace kvm
