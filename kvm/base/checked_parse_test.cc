#include "kvm/base/checked_parse.h"

#include <string>

#include "gtest/gtest.h"
#include "kvm/model/stack/stack.pb.h"
#include "testing/allocation_peak.h"

namespace kvm {
namespace {

StackSpec Spec() {
  StackSpec spec;
  spec.set_width(300);
  spec.set_residual_scale(0.5);
  spec.add_mixers()->set_name("a mixer");
  spec.mutable_mixers(0)->mutable_rwkv7()->set_num_heads(4);
  spec.add_layers("a mixer");
  return spec;
}

TEST(ParseCheckedTest, ParsesWhatWasSerialized) {
  StackSpec read;
  ASSERT_TRUE(ParseChecked(Spec().SerializeAsString(), &read));
  EXPECT_EQ(read.SerializeAsString(), Spec().SerializeAsString());
  EXPECT_TRUE(ParseChecked("", &read));
}

// Every truncation leaves a field that does not end, unless it falls between two.
TEST(ParseCheckedTest, AgreesWithTheParserOnEveryTruncation) {
  const std::string bytes = Spec().SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    StackSpec a, b;
    EXPECT_EQ(ParseChecked(absl::string_view(bytes).substr(0, size), &a), b.ParseFromString(bytes.substr(0, size)))
        << size;
  }
}

// A mixer that claims 1.6 GB, and in it a name, or an unknown field, that claims nearly as much.
TEST(ParseCheckedTest, LengthsBeyondTheEndCostNothing) {
  for (const char field : {'\x0a', '\x7a'}) {
    const std::string bytes =
        std::string("\x1a\xff\xff\xff\xff\x05", 6) + field + std::string("\xf0\xff\xff\xff\x05", 5);
    StackSpec spec;
    EXPECT_LT(AllocationPeak([&] { EXPECT_FALSE(ParseChecked(bytes, &spec)); }), size_t{1} << 16);
  }
}

TEST(ParseCheckedTest, RefusesWhatIsNoMessage) {
  StackSpec spec;
  EXPECT_FALSE(ParseChecked(std::string("\x00\x01", 2), &spec));  // field 0
  EXPECT_FALSE(ParseChecked("\x0b\x0c", &spec));                  // a group
  EXPECT_FALSE(ParseChecked("\x08", &spec));                      // a number that is not there
}

}  // namespace
}  // namespace kvm
