#include "tools/report/stacked_state.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/state/host_layer_state.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;

// Two numbers in a row.
class PairState : public MixerState {
 public:
  PairState(float a, float b) : a_(a), b_(b) {}

  std::unique_ptr<MixerState> Clone() const override { return std::make_unique<PairState>(a_, b_); }
  int64_t ByteSize() const override { return 2 * sizeof(float); }
  void Save(const StateWriter& out) const override {
    out.Floats("a", {&a_, 1});
    out.Floats("b", {&b_, 1});
  }
  absl::Status Restore(const StateReader& in, int64_t) override {
    const absl::Status status = in.Floats("a", {&a_, 1});
    return status.ok() ? in.Floats("b", {&b_, 1}) : status;
  }
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
  std::vector<HostLayerState> layers(1);
  layers[0].mixer = CopyOnWrite<MixerState>(std::make_unique<PairState>(a, b));
  SequenceState sequence = NewHostSequence(1, std::move(layers));
  SequenceAccess::EndPass(sequence, 7);
  return sequence;
}

TEST(StackStatesTest, StacksTensorsAndKeepsScalars) {
  std::vector<SequenceState> sequences;
  sequences.push_back(StateOf(1, 2));
  sequences.push_back(StateOf(3, 4));
  sequences.push_back(StateOf(5, 6));
  bool saw_pair = false, saw_scalar = false;
  std::vector<NamedTensor> together = StackStates(sequences).value();
  for (const NamedTensor& named : together) {
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

// Heads with rows of one key channel as a KVM layer exports them: padded to the most rows, with counts if they differ.
class RowsState : public MixerState {
 public:
  explicit RowsState(std::vector<std::vector<float>> heads) : heads_(std::move(heads)) {}

  std::unique_ptr<MixerState> Clone() const override { return std::make_unique<RowsState>(heads_); }
  int64_t ByteSize() const override {
    size_t rows = 0;
    for (const std::vector<float>& head : heads_) rows += head.size();
    return static_cast<int64_t>(rows * sizeof(float));
  }
  void Save(const StateWriter& out) const override {
    for (size_t h = 0; h < heads_.size(); ++h) out.Floats("head." + std::to_string(h), heads_[h]);
  }
  absl::Status Restore(const StateReader& in, int64_t) override {
    absl::Status status;
    for (size_t h = 0; h < heads_.size(); ++h) {
      status.Update(in.Floats("head." + std::to_string(h), absl::MakeSpan(heads_[h])));
    }
    return status;
  }
  std::vector<NamedTensor> Export() const override {
    size_t most = 0;
    for (const std::vector<float>& head : heads_) most = std::max(most, head.size());
    std::vector<float> padded;
    std::vector<int64_t> counts;
    for (const std::vector<float>& head : heads_) {
      padded.insert(padded.end(), head.begin(), head.end());
      padded.resize(padded.size() + most - head.size());
      counts.push_back(static_cast<int64_t>(head.size()));
    }
    const int64_t num_heads = static_cast<int64_t>(heads_.size());
    std::vector<NamedTensor> tensors;
    for (const char* name : {"kvm_s_k", "kvm_s_vlen"}) {
      tensors.push_back({name, Tensor::FromFloats({num_heads, static_cast<int64_t>(most), 1}, padded)});
    }
    if (std::count(counts.begin(), counts.end(), counts[0]) < num_heads) {
      tensors.push_back({"kvm_row_counts", Tensor::FromInts({num_heads}, counts)});
    }
    return tensors;
  }

 private:
  std::vector<std::vector<float>> heads_;
};

// The stacked states of sequences with one layer each.
std::map<std::string, Tensor> StackRows(const std::vector<std::vector<std::vector<float>>>& of_sequences) {
  std::vector<SequenceState> sequences;
  for (const std::vector<std::vector<float>>& heads : of_sequences) {
    std::vector<HostLayerState> layers(1);
    layers[0].mixer = CopyOnWrite<MixerState>(std::make_unique<RowsState>(heads));
    sequences.push_back(NewHostSequence(1, std::move(layers)));
  }
  std::map<std::string, Tensor> stacked;
  std::vector<NamedTensor> together = StackStates(sequences).value();
  for (NamedTensor& named : together) stacked[named.name] = std::move(named.tensor);
  return stacked;
}

TEST(StackStatesTest, PadsRowsAndCountsThemWhereSequencesDiffer) {
  const std::map<std::string, Tensor> stacked = StackRows({{{1}, {2}}, {{3, 4, 5}, {6, 7}}, {{8, 9}, {10, 11}}});
  const Tensor& keys = stacked.at("cache.0.kvm_s_k");
  EXPECT_THAT(keys.shape(), ElementsAre(3, 2, 3, 1));
  EXPECT_THAT(keys.floats(), ElementsAre(1, 0, 0, 2, 0, 0, 3, 4, 5, 6, 7, 0, 8, 9, 0, 10, 11, 0));
  const Tensor& counts = stacked.at("cache.0.kvm_row_counts");
  EXPECT_THAT(counts.shape(), ElementsAre(3, 2));
  EXPECT_THAT(counts.ints(), ElementsAre(1, 1, 3, 2, 2, 2));
}

TEST(StackStatesTest, CountsNoRowsWhereAllAreEqual) {
  const std::map<std::string, Tensor> stacked = StackRows({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}});
  EXPECT_THAT(stacked.at("cache.0.kvm_s_k").floats(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(stacked.count("cache.0.kvm_row_counts"), 0u);
}

}  // namespace
}  // namespace kvm
