#ifndef KVM_IO_TORCH_PICKLE_H_
#define KVM_IO_TORCH_PICKLE_H_

// Reading Python pickles (protocols 2 to 5) that hold nothing but dicts, lists, tuples, strings, whole numbers, bools,
// None, and calls of functions on a list of the caller's. Nothing is ever called: the calls are handed out as values.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kvm {

// One object. Others are named by their index in Pickle::values, so that one may be part of many, even of itself.
struct PickleValue {
  enum class Kind { kNone, kBool, kInt, kString, kTuple, kList, kDict, kGlobal, kCall, kPersistentId };
  Kind kind = Kind::kNone;
  int64_t number = 0;           // kBool, kInt; kGlobal: its index among the allowed ones
  absl::string_view text;       // kString: UTF-8, in the bytes that were read
  std::vector<uint32_t> items;  // kTuple, kList; kDict: key, value, ...; kCall: function, arguments; kPersistentId: id
};

// "a dict", for messages.
absl::string_view Describe(PickleValue::Kind kind);

struct Pickle {
  std::deque<PickleValue> values;  // grows without copying
  uint32_t root = 0;

  const PickleValue& Root() const { return values[root]; }
  const PickleValue& Item(const PickleValue& value, size_t i) const { return values[value.items[i]]; }
};

// Reads all of `bytes`. Globals in `allowed` ("torch.FloatStorage") may be named and called; collections.OrderedDict
// becomes a dict, and the attributes that it may carry are dropped. InvalidArgument, beginning with `source`, for any
// other global, opcode or object state, by name, and for whatever Python's own reader would stumble over. Time and
// memory are in proportion to the number of bytes, of which there may be at most kMaxPickleBytes; no recursion.
inline constexpr size_t kMaxPickleBytes = size_t{8} << 20;
absl::StatusOr<Pickle> ReadPickle(absl::string_view bytes, absl::Span<const absl::string_view> allowed,
                                  const std::string& source);

}  // namespace kvm

#endif  // KVM_IO_TORCH_PICKLE_H_
