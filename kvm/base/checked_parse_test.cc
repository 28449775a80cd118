#include "kvm/base/checked_parse.h"

#include <string>

#include "google/protobuf/descriptor.pb.h"
#include "gtest/gtest.h"
#include "testing/allocation_peak.h"

namespace kvm {
namespace {

using google::protobuf::DescriptorProto;

// Strings, numbers and messages in messages.
DescriptorProto Message() {
  DescriptorProto message;
  message.set_name("a message");
  message.add_field()->set_number(300);
  message.mutable_field(0)->mutable_options()->set_packed(true);
  message.add_nested_type()->set_name("one inside");
  message.add_reserved_name("a field");
  return message;
}

TEST(ParseCheckedTest, ParsesWhatWasSerialized) {
  DescriptorProto read;
  ASSERT_TRUE(ParseChecked(Message().SerializeAsString(), &read));
  EXPECT_EQ(read.SerializeAsString(), Message().SerializeAsString());
  EXPECT_TRUE(ParseChecked("", &read));
}

// Every truncation leaves a field that does not end, unless it falls between two.
TEST(ParseCheckedTest, AgreesWithTheParserOnEveryTruncation) {
  const std::string bytes = Message().SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    DescriptorProto a, b;
    EXPECT_EQ(ParseChecked(absl::string_view(bytes).substr(0, size), &a), b.ParseFromString(bytes.substr(0, size)))
        << size;
  }
}

// A message inside that claims 1.6 GB, and in it a name, or an unknown field, that claims nearly as much.
TEST(ParseCheckedTest, LengthsBeyondTheEndCostNothing) {
  for (const char field : {'\x0a', '\x7a'}) {
    const std::string bytes =
        std::string("\x1a\xff\xff\xff\xff\x05", 6) + field + std::string("\xf0\xff\xff\xff\x05", 5);
    DescriptorProto message;
    EXPECT_LT(AllocationPeak([&] { EXPECT_FALSE(ParseChecked(bytes, &message)); }), size_t{1} << 16);
  }
}

TEST(ParseCheckedTest, RefusesWhatIsNoMessage) {
  DescriptorProto message;
  EXPECT_FALSE(ParseChecked(std::string("\x00\x01", 2), &message));  // field 0
  EXPECT_FALSE(ParseChecked("\x0b\x0c", &message));                  // a group
  EXPECT_FALSE(ParseChecked("\x08", &message));                      // a number that is not there
}

}  // namespace
}  // namespace kvm
