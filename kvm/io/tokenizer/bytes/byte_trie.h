#ifndef KVM_IO_TOKENIZER_BYTES_BYTE_TRIE_H_
#define KVM_IO_TOKENIZER_BYTES_BYTE_TRIE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace kvm {

// Finds the longest of many byte strings that a text begins with. Immutable; thread-safe.
class ByteTrie {
 public:
  // Strings, none empty and none twice, with values that are not negative.
  explicit ByteTrie(std::vector<std::pair<std::string, int32_t>> strings);

  struct Match {
    size_t length;  // 0 where the text begins with none of the strings
    int32_t value;
  };
  // Looks at no more bytes than the longest string has.
  Match Longest(absl::string_view text) const;

 private:
  // A node's children lie side by side: child i has the byte bytes_[first_child + i] before it.
  struct Node {
    uint32_t first_child;
    uint32_t children;
    int32_t value;  // of the string that ends here, or −1
  };

  std::vector<Node> nodes_;     // the root first, then level by level
  std::vector<uint8_t> bytes_;  // by node: the byte that leads to it
  uint32_t roots_[256];         // by first byte: the child of the root, or 0
};

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_BYTES_BYTE_TRIE_H_
