#ifndef TESTING_CONFORMANCE_TEST_STACKS_H_
#define TESTING_CONFORMANCE_TEST_STACKS_H_

// Small stacks that between them use everything a StackSpec can say.

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "kvm/model/stack/stack.pb.h"

namespace kvm {

struct TestStack {
  std::string name;
  StackSpec spec;
  int64_t num_tokens = 0;  // a sequence this long takes it through several state updates or past its window
  uint64_t seed = 1;       // of RandomWeights
  // Whether reference_model.h can do everything that the stack says.
  bool has_reference = true;
};

// How GoogleTest prints one.
void PrintTo(const TestStack& stack, std::ostream* out);

// KVM mixers have chunks of kTestChunk tokens.
inline constexpr int64_t kTestChunk = 8;

std::vector<TestStack> TestStacks();

// Those of them that have a reference, and those with a linear recurrence: an RWKV-7 or delta rule layer.
std::vector<TestStack> ReferenceStacks();
std::vector<TestStack> RecurrentStacks();

// `count` token ids of a vocabulary, the same for the same seed.
std::vector<int32_t> TestTokens(const StackSpec& spec, int64_t count, uint64_t seed);

}  // namespace kvm

#endif  // TESTING_CONFORMANCE_TEST_STACKS_H_
