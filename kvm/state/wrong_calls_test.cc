// Every call of a memory with every kind of argument that does not fit: it says what is wrong and ends the program, in
// all builds.

#include <cstdint>
#include <functional>
#include <memory_resource>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/state/block_window.h"
#include "kvm/state/ovq_memory.h"
#include "kvm/state/slot_budget.h"
#include "kvm/state/slot_memory.h"

namespace kvm {
namespace {

using View = MatrixView<float>;

// A call that is wrong in one way, and how its message begins.
struct WrongCall {
  std::function<void()> call;
  const char* message;
};

void ExpectAllDie(const std::vector<WrongCall>& calls) {
  for (const WrongCall& wrong : calls) {
    EXPECT_DEATH(wrong.call(), testing::StartsWith(wrong.message)) << wrong.message;
  }
}

// Matrices [rows, cols]; what is in them is of no interest.
View Matrix(int64_t rows, int64_t cols) {
  static std::vector<float> memory(1000);
  return View(memory.data(), rows, cols);
}

TEST(WrongCallsDeathTest, SlotMemory) {
  SlotMemory memory(4, 3, DType::kF32);
  ExpectAllDie({
      {[] { SlotMemory none(0, 3, DType::kF32); }, "SlotMemory: qk_dim is 0, expected at least 1"},
      {[] { SlotMemory none(4, 0, DType::kF32); }, "SlotMemory: v_dim is 0, expected at least 1"},
      {[] { SlotMemory none(4, 3, DType::kF16); }, "SlotMemory: expected readout to be F32, BF16 or I8"},
      {[&] { memory.Reserve(-1); }, "Reserve: additional is -1, expected at least 0"},
      {[&] { SlotMemory::ByteSizeOf(-1, 4, 3, DType::kF32); }, "ByteSizeOf: count is -1, expected at least 0"},
      {[&] {
         SlotRows rows = memory.Reserve(2);
         rows.count = rows.capacity + 1;
         memory.Commit(rows);
       },
       "Commit: rows.count is 17, expected 0 to 16"},
      {[&] {
         SlotRows rows = memory.Reserve(2);
         rows.count = 2;
         memory.Commit(rows);
         rows.count = 1;
         memory.Commit(rows);
       },
       "Commit: rows.count is 1, expected 2 to 16"},
      {[&] {
         SlotMemory other(4, 3, DType::kF32);
         memory.Reserve(1);
         memory.Commit(other.Reserve(1));
       },
       "Commit: expected the view that Reserve() returned last"},
  });
}

TEST(WrongCallsDeathTest, OvqMemory) {
  OvqMemory memory(4);
  OvqDictionary two = memory.Reserve(2);
  two.count = 2;
  memory.Commit(two);
  std::vector<float> counts(2);
  const auto read = [&](View keys, View values, size_t num_counts) {
    memory.Read(keys, values, absl::MakeSpan(counts.data(), num_counts));
  };
  ExpectAllDie({
      {[] { OvqMemory none(0); }, "OvqMemory: dim is 0, expected at least 1"},
      {[&] { memory.Reserve(-1); }, "Reserve: num_centroids is -1, expected at least 0"},
      {[&] { OvqMemory::ByteSizeOf(-1, 4); }, "ByteSizeOf: count is -1, expected at least 0"},
      {[&] { OvqMemory::ByteSizeOf(1, 0); }, "ByteSizeOf: dim is 0, expected at least 1"},
      {[&] {
         two.count = 17;
         memory.Commit(two);
       },
       "Commit: dictionary.count is 17, expected 2 to 16"},
      {[&] {
         OvqMemory other(4);
         memory.Commit(other.Reserve(3));
       },
       "Commit: expected the view that Reserve() returned last"},
      {[&] { read(Matrix(2, 3), Matrix(2, 4), 2); }, "Read: keys is [2, 3], expected [2, 4]"},
      {[&] { read(Matrix(2, 4), Matrix(2, 5), 2); }, "Read: values is [2, 5], expected [2, 4]"},
      {[&] { read(Matrix(1, 4), Matrix(2, 4), 2); }, "Read: keys.rows is 1, expected at least 2"},
      {[&] { read(Matrix(2, 4), Matrix(1, 4), 2); }, "Read: values.rows is 1, expected at least 2"},
      {[&] { read(Matrix(2, 4), Matrix(2, 4), 1); }, "Read: counts.size() is 1, expected at least 2"},
  });
}

TEST(WrongCallsDeathTest, BlockWindow) {
  const BlockWindowShape shape = {2, 4, 3, 5, DType::kF32};
  BlockWindow window(shape);
  window.Append(Matrix(7, 8), Matrix(7, 6));
  const auto build = [&](auto change) {
    return [=] {
      BlockWindowShape wrong = shape;
      change(wrong);
      BlockWindow of_wrong(wrong);
      of_wrong.Append(Matrix(1, 8), Matrix(1, 6));
    };
  };
  using S = BlockWindowShape;
  std::pmr::vector<KeyValueSegment> segments;
  ExpectAllDie({
      {build([](S& s) { s.num_heads = 0; }), "BlockWindow: shape.num_heads is 0, expected at least 1"},
      {build([](S& s) { s.qk_dim = 0; }), "BlockWindow: shape.qk_dim is 0, expected at least 1"},
      {build([](S& s) { s.v_dim = 0; }), "BlockWindow: shape.v_dim is 0, expected at least 1"},
      {build([](S& s) { s.block_len = -1; }), "BlockWindow: shape.block_len is -1, expected at least 0"},
      {build([](S& s) { s.block_len = 0; }), "Append: block_len is 0, expected at least 1"},
      {build([](S& s) { s.dtype = DType::kI8; }), "BlockWindow: expected shape.dtype to be F32 or BF16"},
      {[&] { window.Append(Matrix(1, 7), Matrix(1, 6)); }, "Append: keys is [1, 7], expected [1, 8]"},
      {[&] { window.Append(Matrix(1, 8), Matrix(1, 5)); }, "Append: values is [1, 5], expected [1, 6]"},
      {[&] { window.Append(Matrix(1, 8), Matrix(2, 6)); }, "Append: values is [2, 6], expected [1, 6]"},
      {[&] { window.AppendSegments(2, &segments); }, "AppendSegments: head is 2, expected 0 to 1"},
      {[&] { window.AppendSegments(-1, &segments); }, "AppendSegments: head is -1, expected 0 to 1"},
      {[&] { window.Read(2, 0, 1, Matrix(1, 4), Matrix(1, 3)); }, "Read: head is 2, expected 0 to 1"},
      {[&] { window.Read(0, -1, 1, Matrix(1, 4), Matrix(1, 3)); }, "Read: first is -1, expected at least 0"},
      {[&] { window.Read(0, 6, 2, Matrix(2, 4), Matrix(2, 3)); }, "Read: count is 2, expected 0 to 1"},
      {[&] { window.Read(0, 0, 2, Matrix(2, 5), Matrix(2, 3)); }, "Read: keys is [2, 5], expected [2, 4]"},
      {[&] { window.Read(0, 0, 2, Matrix(2, 4), Matrix(2, 4)); }, "Read: values is [2, 4], expected [2, 3]"},
      {[&] { window.Read(0, 0, 2, Matrix(1, 4), Matrix(2, 3)); }, "Read: keys.rows is 1, expected at least 2"},
      {[&] { window.Read(0, 0, 2, Matrix(2, 4), Matrix(1, 3)); }, "Read: values.rows is 1, expected at least 2"},
      {[] { NewestBlocksBegin(-1, 5, 2); }, "NewestBlocksBegin: position is -1, expected at least 0"},
      {[] { NewestBlocksBegin(1, 0, 2); }, "NewestBlocksBegin: block_len is 0, expected at least 1"},
      {[] { NewestBlocksBegin(1, 5, -1); }, "NewestBlocksBegin: num_blocks is -1, expected at least 0"},
  });
}

TEST(WrongCallsDeathTest, SlotBudget) {
  ExpectAllDie({
      {[] { TargetRows({}, -1, 8, 8, 8); }, "TargetRows: context_length is -1, expected at least 0"},
      {[] { TargetRows({}, 8, -1, 8, 8); }, "TargetRows: available is -1, expected at least 0"},
      {[] { TargetRows({}, 8, 8, -1, 8); }, "TargetRows: chunk_len is -1, expected at least 0"},
      {[] { TargetRows({}, 8, 8, 8, -1); }, "TargetRows: present_rows is -1, expected at least 0"},
  });
}

// A window that has no room for positions holds none and gives none up.
TEST(BlockWindowTest, OfNoBlocksStaysEmpty) {
  BlockWindow window({2, 4, 3, 0, DType::kF32});
  window.Append(Matrix(0, 8), Matrix(0, 6));
  window.DropBefore(10);
  EXPECT_EQ(window.begin(), 0);
  EXPECT_EQ(window.end(), 0);
  EXPECT_EQ(window.ByteSize(), 0);
}

}  // namespace
}  // namespace kvm
