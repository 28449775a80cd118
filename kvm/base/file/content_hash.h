#ifndef KVM_BASE_FILE_CONTENT_HASH_H_
#define KVM_BASE_FILE_CONTENT_HASH_H_

// A 64-bit hash that tells contents apart and finds damage; it is no defence against forgery. Defined byte by byte in
// docs/formats/packed.md, so that it may stand in files.
//
//   ContentHash hash;
//   hash.Add(bytes);
//   const uint64_t value = hash.Value();

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace kvm {

class ContentHash {
 public:
  // Contents may come in any pieces.
  void Add(absl::string_view bytes);
  uint64_t Value() const;

 private:
  static constexpr size_t kBlock = 32;

  uint64_t lanes_[4] = {1, 2, 3, 4};
  uint64_t length_ = 0;
  char rest_[kBlock] = {};  // the first length_ % kBlock bytes of the next block
};

}  // namespace kvm

#endif  // KVM_BASE_FILE_CONTENT_HASH_H_
