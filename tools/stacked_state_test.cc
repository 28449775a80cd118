#include "tools/stacked_state.h"

#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;

// Two numbers in a row.
class PairState : public MixerState {
 public:
  PairState(float a, float b) : a_(a), b_(b) {}

  std::unique_ptr<MixerState> Clone() const override { return std::make_unique<PairState>(a_, b_); }
  int64_t ByteSize() const override { return 2 * sizeof(float); }
  std::vector<NamedTensor> Export() const override {
    std::vector<NamedTensor> tensors;
    tensors.push_back({"pair", Tensor::FromFloats({1, 2}, {a_, b_})});
    return tensors;
  }

 private:
  float a_;
  float b_;
};

SequenceState StateOf(float a, float b) {
  std::vector<LayerState> layers(1);
  layers[0].mixer = std::make_unique<PairState>(a, b);
  SequenceState sequence(1, std::move(layers));
  sequence.Advance(7);
  return sequence;
}

TEST(StackStatesTest, StacksTensorsAndKeepsScalars) {
  std::vector<SequenceState> sequences;
  sequences.push_back(StateOf(1, 2));
  sequences.push_back(StateOf(3, 4));
  sequences.push_back(StateOf(5, 6));
  bool saw_pair = false, saw_scalar = false;
  for (const NamedTensor& named : StackStates(sequences)) {
    if (named.name == "cache.0.pair") {
      saw_pair = true;
      EXPECT_THAT(named.tensor.shape(), ElementsAre(3, 1, 2));
      EXPECT_THAT(named.tensor.floats(), ElementsAre(1, 2, 3, 4, 5, 6));
    } else if (named.name == "cache.0.seen_tokens") {
      saw_scalar = true;
      EXPECT_TRUE(named.tensor.shape().empty());
      EXPECT_EQ(named.tensor.ints()[0], 7);
    }
  }
  EXPECT_TRUE(saw_pair);
  EXPECT_TRUE(saw_scalar);
}

}  // namespace
}  // namespace kvm
