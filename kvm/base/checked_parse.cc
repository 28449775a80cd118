#include "kvm/base/checked_parse.h"

#include <cstdint>
#include <limits>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace kvm {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

// As deep as protobuf parses.
constexpr int kMaxDepth = 100;

// Whether every field, in messages within messages too, ends where or before the message does that it is in.
bool LengthsFit(const Descriptor& type, absl::string_view bytes, int depth) {
  if (depth > kMaxDepth) return false;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  while (const uint32_t tag = in.ReadTag()) {
    uint64_t number;
    uint32_t length;
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_VARINT:
        if (!in.ReadVarint64(&number)) return false;
        break;
      case WireFormatLite::WIRETYPE_FIXED64:
        if (!in.ReadLittleEndian64(&number)) return false;
        break;
      case WireFormatLite::WIRETYPE_FIXED32:
        if (!in.ReadLittleEndian32(&length)) return false;
        break;
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
        if (!in.ReadVarint32(&length)) return false;
        const absl::string_view rest = bytes.substr(static_cast<size_t>(in.CurrentPosition()));
        if (length > rest.size()) return false;
        const FieldDescriptor* const field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
        const bool nested = field != nullptr && field->type() == FieldDescriptor::TYPE_MESSAGE;
        if (nested && !LengthsFit(*field->message_type(), rest.substr(0, length), depth + 1)) return false;
        if (!in.Skip(static_cast<int>(length))) return false;
        break;
      }
      default:  // groups: no message here has any
        return false;
    }
  }
  return in.ConsumedEntireMessage();
}

}  // namespace

bool ParseChecked(absl::string_view bytes, google::protobuf::Message* message) {
  return bytes.size() <= static_cast<size_t>(std::numeric_limits<int>::max()) &&
         LengthsFit(*message->GetDescriptor(), bytes, 0) &&
         message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace kvm
