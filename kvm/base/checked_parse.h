#ifndef KVM_BASE_CHECKED_PARSE_H_
#define KVM_BASE_CHECKED_PARSE_H_

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace kvm {

// Parses a message from bytes that others wrote. False for bytes that are no such message. Unlike the message's own
// parser, which takes the lengths of nested fields on trust and allocates up to 50 MB by them before it finds that they
// reach beyond the end, this takes memory in proportion to the bytes.
bool ParseChecked(absl::string_view bytes, google::protobuf::Message* message);

}  // namespace kvm

#endif  // KVM_BASE_CHECKED_PARSE_H_
