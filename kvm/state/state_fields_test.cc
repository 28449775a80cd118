#include "kvm/state/state_fields.h"

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr float kSix[] = {1, 2, 3, 4, 5, 6};

void ExpectProblem(const absl::Status& status, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

// "length", "window.begin", and "window.keys" F32 [2, 3].
StateFields Saved() {
  StateFields fields;
  const StateWriter out(&fields);
  out.Number("length", 7);
  const StateWriter window = out.Part("window");
  window.Number("begin", -4);
  window.Tensor("keys", DType::kF32, {2, 3}, kSix);
  return fields;
}

TEST(StateFieldsTest, PartsPrefixTheirNames) {
  const StateFields fields = Saved();
  ASSERT_EQ(fields.numbers.size(), 2u);
  EXPECT_EQ(fields.numbers[0].name, "length");
  EXPECT_EQ(fields.numbers[1].name, "window.begin");
  EXPECT_EQ(fields.numbers[1].value, -4);
  ASSERT_EQ(fields.tensors.size(), 1u);
  EXPECT_EQ(fields.tensors[0].name, "window.keys");
  EXPECT_EQ(fields.tensors[0].view.shape, (Shape{2, 3}));
}

TEST(StateFieldsTest, TensorsAreBorrowed) { EXPECT_EQ(Saved().tensors[0].view.data, kSix); }

TEST(StateFieldsTest, ByteSizeAddsTensors) {
  StateFields fields = Saved();
  EXPECT_EQ(fields.ByteSize(), 24);
  StateWriter(&fields).Tensor("half", DType::kBF16, {3}, kSix);
  EXPECT_EQ(fields.ByteSize(), 30);
}

TEST(StateFieldsTest, ReadsBackWhatWasWritten) {
  const StateFields fields = Saved();
  const StateReader in(fields);
  EXPECT_EQ(in.Number("length", 0, 7).value(), 7);
  EXPECT_EQ(in.Part("window").Number("begin", -4, -4).value(), -4);
  std::vector<float> keys(6);
  ASSERT_TRUE(in.Part("window").Tensor("keys", DType::kF32, {2, 3}, keys.data()).ok());
  EXPECT_THAT(keys, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_TRUE(in.Finish().ok());
  EXPECT_TRUE(in.Part("window").Finish().ok());
}

TEST(StateFieldsTest, FloatsAreTensorsOfOneDimension) {
  StateFields fields;
  StateWriter(&fields).Floats("row", kSix);
  EXPECT_EQ(fields.tensors[0].view.dtype, DType::kF32);
  EXPECT_EQ(fields.tensors[0].view.shape, (Shape{6}));
  std::vector<float> row(6);
  ASSERT_TRUE(StateReader(fields).Floats("row", absl::MakeSpan(row)).ok());
  EXPECT_THAT(row, ElementsAre(1, 2, 3, 4, 5, 6));
  ExpectProblem(StateReader(fields).Floats("row", absl::MakeSpan(row).first(5)), {"row", "F32 [6]", "F32 [5]"});
}

TEST(StateFieldsTest, IntsAreWithinTheirRange) {
  const std::vector<int32_t> rows = {4, 0, 2};
  StateFields fields;
  StateWriter(&fields).Part("head").Tensor("rows", DType::kI32, {3}, rows.data());
  const StateReader in = StateReader(fields).Part("head");
  EXPECT_EQ(in.Ints("rows", 3, 0, 4).value(), rows);
  EXPECT_THAT(in.Ints("absent", 0, 0, 4).value(), ElementsAre());
  ExpectProblem(in.Ints("rows", 3, 0, 3).status(), {"head.rows", "[0] is 4", "0 to 3"});
  ExpectProblem(in.Ints("rows", 3, 1, 4).status(), {"head.rows", "[1] is 0", "1 to 4"});
  ExpectProblem(in.Ints("rows", 2, 0, 4).status(), {"head.rows", "[3]", "[2]"});
}

TEST(StateFieldsTest, ReadsUnalignedMemory) {
  std::vector<char> file(1 + sizeof(kSix));
  std::copy_n(reinterpret_cast<const char*>(kSix), sizeof(kSix), file.data() + 1);
  const StateFields fields = {{}, {{"row", {DType::kF32, {6}, file.data() + 1}}}};
  std::vector<float> row(6);
  ASSERT_TRUE(StateReader(fields).Floats("row", absl::MakeSpan(row)).ok());
  EXPECT_THAT(row, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(StateFieldsTest, EmptyTensorsAreNeitherWrittenNorLookedFor) {
  StateFields fields;
  StateWriter(&fields).Tensor("none", DType::kF32, {0, 3}, nullptr);
  StateWriter(&fields).Floats("nothing", {});
  EXPECT_TRUE(fields.tensors.empty());
  const StateReader in(fields);
  EXPECT_TRUE(in.Tensor("none", DType::kF32, {3, 0}, nullptr).ok());
  EXPECT_TRUE(in.Floats("nothing", {}).ok());
  EXPECT_EQ(in.View("none", DType::kF32, {0}).value().data, nullptr);
}

TEST(StateFieldsTest, ScalarsAreTensorsWithOneElement) {
  StateFields fields;
  StateWriter(&fields).Tensor("one", DType::kF32, {}, kSix);
  EXPECT_EQ(fields.ByteSize(), 4);
  float one = 0;
  ASSERT_TRUE(StateReader(fields).Tensor("one", DType::kF32, {}, &one).ok());
  EXPECT_EQ(one, 1);
}

TEST(StateFieldsTest, MissingFieldsAreNamed) {
  const StateFields fields = Saved();
  const StateReader window = StateReader(fields).Part("window");
  ExpectProblem(window.Number("length", 0, 5).status(), {"number window.length", "none", "0 to 5"});
  float x = 0;
  ExpectProblem(window.Tensor("values", DType::kF32, {1}, &x), {"tensor window.values", "none", "F32 [1]"});
  // A number is no tensor and the other way round.
  ExpectProblem(window.Tensor("begin", DType::kF32, {1}, &x), {"tensor window.begin", "none"});
  ExpectProblem(window.Number("keys", 0, 1).status(), {"number window.keys", "none"});
}

TEST(StateFieldsTest, NumbersOutOfRangeAreNamed) {
  const StateFields fields = Saved();
  const StateReader in(fields);
  ExpectProblem(in.Number("length", 8, 9).status(), {"length", "got 7", "expected 8 to 9"});
  ExpectProblem(in.Number("length", 0, 6).status(), {"length", "got 7", "expected 0 to 6"});
  ExpectProblem(in.Number("length", 6, 6).status(), {"length", "got 7", "expected 6"});
  const int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(in.Number("length", least, most).value(), 7);
}

TEST(StateFieldsTest, OtherDTypesAndShapesAreNamed) {
  const StateFields fields = Saved();
  const StateReader window = StateReader(fields).Part("window");
  std::vector<float> keys(6, -1);
  ExpectProblem(window.Tensor("keys", DType::kI32, {2, 3}, keys.data()), {"window.keys", "F32 [2, 3]", "I32 [2, 3]"});
  ExpectProblem(window.Tensor("keys", DType::kF32, {3, 2}, keys.data()), {"window.keys", "F32 [2, 3]", "F32 [3, 2]"});
  ExpectProblem(window.Tensor("keys", DType::kF32, {6}, keys.data()), {"window.keys", "F32 [6]"});
  EXPECT_THAT(keys, ElementsAre(-1, -1, -1, -1, -1, -1));
}

TEST(StateFieldsTest, DuplicatesAreNamedWhetherTakenOrNot) {
  StateFields fields = Saved();
  StateWriter(&fields).Number("length", 8);
  StateWriter(&fields).Part("window").Tensor("keys", DType::kF32, {2, 3}, kSix);
  const StateReader in(fields);
  ExpectProblem(in.Number("length", 0, 10).status(), {"length", "2 of that name"});
  ExpectProblem(in.View("window.keys", DType::kF32, {2, 3}).status(), {"window.keys", "2 of that name"});
  ExpectProblem(in.Finish(), {"length", "window.keys", "window.begin"});
}

TEST(StateFieldsTest, LeftoversAreNamed) {
  const StateFields fields = Saved();
  const StateReader in(fields);
  ExpectProblem(in.Finish(), {"length", "window.begin", "window.keys"});
  ASSERT_TRUE(in.Part("window").Number("begin", -9, 9).ok());
  EXPECT_THAT(std::string(in.Finish().message()),
              AllOf(HasSubstr("length"), HasSubstr("window.keys"), Not(HasSubstr("window.begin"))));
}

TEST(StateFieldsTest, ManyLeftoversAreCounted) {
  StateFields fields;
  for (int i = 0; i < 100; ++i) StateWriter(&fields).Number("n" + std::to_string(i), i);
  ExpectProblem(StateReader(fields).Finish(), {"n0", "92 more"});
}

}  // namespace
}  // namespace kvm
