// Once a model has run for a while, a token that makes no state larger allocates no memory.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/model/language_model.h"
#include "kvm/model/sampler.h"
#include "testing/conformance/conformance.h"
#include "testing/conformance/test_stacks.h"

namespace {

std::atomic<int64_t> num_allocations{0};

void* Allocate(size_t size, size_t alignment) {
  ++num_allocations;
  void* const memory = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Every other form of new ends in one of these.
void* operator new(size_t size) { return Allocate(size, alignof(std::max_align_t)); }
void* operator new(size_t size, std::align_val_t alignment) { return Allocate(size, static_cast<size_t>(alignment)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace kvm {
namespace {

struct Size {
  int64_t bytes = 0;
  int64_t rows = 0;  // of all layers: these may grow while a window shrinks
};

Size SizeOf(const SequenceState& sequence) {
  Size size;
  size.bytes = sequence.ByteSize();
  for (int64_t i = 0; i < sequence.num_layers(); ++i) size.rows += sequence.layer(i).NumRows();
  return size;
}

class AllocationTest : public ::testing::TestWithParam<TestStack> {};

TEST_P(AllocationTest, NoneForATokenThatMakesNoStateLarger) {
  const ConformanceSubject subject(GetParam(), {});
  ExecutionContext context(/*num_threads=*/1);
  SequenceState sequence = subject.model->NewSequence();
  std::vector<float> logits(subject.model->vocab_size());
  const MatrixView<float> row(logits.data(), 1, subject.model->vocab_size());
  SamplerOptions options;
  options.top_p = 0.9;
  Sampler sampler(options);
  sampler.Observe(static_cast<int32_t>(subject.model->vocab_size()) - 1);

  Size largest;
  int32_t token = 1;
  const int64_t warm = 3 * subject.stack.num_tokens;
  for (int64_t t = 0; t < 5 * subject.stack.num_tokens; ++t) {
    const int64_t before = num_allocations;
    ASSERT_TRUE(subject.model->Extend({{&sequence, {&token, 1}, row}}, context).ok());
    token = sampler.Sample(logits);
    const int64_t allocations = num_allocations - before;
    const Size size = SizeOf(sequence);
    if (t >= warm && size.bytes <= largest.bytes && size.rows <= largest.rows) {
      EXPECT_EQ(allocations, 0) << "token " << t;
    }
    largest = {std::max(largest.bytes, size.bytes), std::max(largest.rows, size.rows)};
  }
}

INSTANTIATE_TEST_SUITE_P(All, AllocationTest, ::testing::ValuesIn(TestStacks()),
                         [](const auto& info) { return info.param.name; });

TEST(AllocationCountTest, SeesAllocations) {
  const int64_t before = num_allocations;
  const std::vector<int> numbers(100);
  EXPECT_EQ(num_allocations - before, 1);
}

}  // namespace
}  // namespace kvm
