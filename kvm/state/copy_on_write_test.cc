#include "kvm/state/copy_on_write.h"

#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace kvm {
namespace {

using Numbers = std::vector<int>;

CopyOnWrite<Numbers> Of(Numbers numbers) { return CopyOnWrite<Numbers>(std::make_unique<Numbers>(std::move(numbers))); }

TEST(CopyOnWriteTest, BeginsWithoutValue) {
  const CopyOnWrite<Numbers> none, null(nullptr);
  EXPECT_FALSE(none);
  EXPECT_EQ(none.get(), nullptr);
  EXPECT_FALSE(none.is_shared());
  EXPECT_FALSE(null);
  const CopyOnWrite<Numbers> copy = none;
  EXPECT_FALSE(copy);
}

TEST(CopyOnWriteTest, CopiesShareUntilOneIsWrittenTo) {
  CopyOnWrite<Numbers> a = Of({1, 2});
  const Numbers* const before = a.get();
  CopyOnWrite<Numbers> b = a;
  EXPECT_EQ(b.get(), before);
  EXPECT_TRUE(a.is_shared());
  b.Mutable()[0] = 9;
  EXPECT_NE(b.get(), before);
  EXPECT_EQ(a.get(), before);
  EXPECT_EQ(*a, (Numbers{1, 2}));
  EXPECT_EQ(*b, (Numbers{9, 2}));
  EXPECT_FALSE(a.is_shared());
  EXPECT_FALSE(b.is_shared());
}

TEST(CopyOnWriteTest, TheOriginalCopiesTooIfItIsWrittenToFirst) {
  CopyOnWrite<Numbers> a = Of({1});
  const CopyOnWrite<Numbers> b = a;
  a.Mutable()[0] = 2;
  EXPECT_EQ(*b, (Numbers{1}));
  EXPECT_EQ(*a, (Numbers{2}));
}

TEST(CopyOnWriteTest, TheLastOwnerWritesInPlace) {
  CopyOnWrite<Numbers> a = Of({1});
  const Numbers* const before = a.get();
  { const CopyOnWrite<Numbers> b = a; }
  EXPECT_EQ(&a.Mutable(), before);
  CopyOnWrite<Numbers> c = a;
  a = CopyOnWrite<Numbers>();
  EXPECT_EQ(&c.Mutable(), before);
}

TEST(CopyOnWriteTest, MovesTakeTheValueAlong) {
  CopyOnWrite<Numbers> a = Of({1});
  const Numbers* const before = a.get();
  CopyOnWrite<Numbers> b = std::move(a);
  EXPECT_EQ(b.get(), before);
  CopyOnWrite<Numbers> c = Of({5});
  c = std::move(b);
  EXPECT_EQ(c.get(), before);
  EXPECT_FALSE(c.is_shared());
}

TEST(CopyOnWriteTest, AssignmentToItselfKeepsTheValue) {
  CopyOnWrite<Numbers> a = Of({1});
  const CopyOnWrite<Numbers>& same = a;
  a = same;
  EXPECT_EQ(*a, (Numbers{1}));
  EXPECT_FALSE(a.is_shared());
}

struct Shape {
  virtual ~Shape() = default;
  virtual std::unique_ptr<Shape> Clone() const = 0;
  int sides = 0;
};
struct Square : Shape {
  std::unique_ptr<Shape> Clone() const override { return std::make_unique<Square>(*this); }
};

TEST(CopyOnWriteTest, PolymorphicValuesAreCloned) {
  CopyOnWrite<Shape> a(std::make_unique<Square>());
  CopyOnWrite<Shape> b = a;
  b.Mutable().sides = 4;
  EXPECT_EQ(a->sides, 0);
  EXPECT_EQ(b->sides, 4);
  EXPECT_NE(dynamic_cast<const Square*>(b.get()), nullptr);
}

// Counts how many there are, to see that none is lost or destroyed twice.
struct Counted {
  explicit Counted(std::atomic<int>* alive) : alive(alive) { ++*alive; }
  Counted(const Counted& other) : alive(other.alive), number(other.number) { ++*alive; }
  ~Counted() { --*alive; }
  std::atomic<int>* alive;
  int number = 0;
};

TEST(CopyOnWriteTest, HandlesThatShareMayBeUsedOnTwoThreads) {
  std::atomic<int> alive{0};
  for (int round = 0; round < 500; ++round) {
    CopyOnWrite<Counted> a(std::make_unique<Counted>(&alive));
    a.Mutable().number = round;
    CopyOnWrite<Counted> b = a;
    const auto work = [round](CopyOnWrite<Counted>& mine, int add) {
      EXPECT_EQ(mine->number, round);
      CopyOnWrite<Counted> other = mine;
      mine.Mutable().number += add;
      EXPECT_EQ(other->number, round);
      other = CopyOnWrite<Counted>();
      mine.Mutable().number += add;
    };
    std::thread thread([&] { work(b, 1000); });
    work(a, 1);
    thread.join();
    EXPECT_EQ(a->number, round + 2);
    EXPECT_EQ(b->number, round + 2000);
  }
  EXPECT_EQ(alive.load(), 0);
}

}  // namespace
}  // namespace kvm
