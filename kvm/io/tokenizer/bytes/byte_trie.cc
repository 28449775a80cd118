#include "kvm/io/tokenizer/bytes/byte_trie.h"

#include <algorithm>
#include <cstring>

#include "kvm/base/check.h"

namespace kvm {

ByteTrie::ByteTrie(std::vector<std::pair<std::string, int32_t>> strings) : roots_() {
  std::sort(strings.begin(), strings.end());
  Check(strings.empty() || !strings[0].first.empty(), "strings that are not empty");
  Check(std::adjacent_find(strings.begin(), strings.end(),
                           [](const auto& a, const auto& b) { return a.first == b.first; }) == strings.end(),
        "no string twice");
  // The strings of one node, which begin alike, are neighbours.
  struct Range {
    size_t begin;
    size_t end;
  };
  std::vector<Range> ranges = {{0, strings.size()}};  // by node
  nodes_.push_back({0, 0, -1});
  bytes_.push_back(0);
  size_t level_end = 1;
  for (size_t node = 0, depth = 0; node < nodes_.size(); ++node) {
    if (node == level_end) {
      level_end = nodes_.size();
      ++depth;
    }
    Range rest = ranges[node];
    if (rest.begin < rest.end && strings[rest.begin].first.size() == depth) {
      nodes_[node].value = strings[rest.begin].second;
      ++rest.begin;
    }
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (rest.begin < rest.end) {
      const char byte = strings[rest.begin].first[depth];
      size_t end = rest.begin;
      while (end < rest.end && strings[end].first[depth] == byte) ++end;
      nodes_.push_back({0, 0, -1});
      bytes_.push_back(static_cast<uint8_t>(byte));
      ranges.push_back({rest.begin, end});
      rest.begin = end;
    }
    nodes_[node].children = static_cast<uint32_t>(nodes_.size()) - nodes_[node].first_child;
  }
  for (uint32_t i = 0; i < nodes_[0].children; ++i) {
    roots_[bytes_[nodes_[0].first_child + i]] = nodes_[0].first_child + i;
  }
}

ByteTrie::Match ByteTrie::Longest(absl::string_view text) const {
  Match longest = {0, -1};
  if (text.empty()) return longest;
  uint32_t node = roots_[static_cast<uint8_t>(text[0])];
  for (size_t length = 1; node != 0; ++length) {
    if (nodes_[node].value >= 0) longest = {length, nodes_[node].value};
    if (length == text.size() || nodes_[node].children == 0) break;
    const uint8_t* children = bytes_.data() + nodes_[node].first_child;
    const void* found = std::memchr(children, static_cast<uint8_t>(text[length]), nodes_[node].children);
    if (found == nullptr) break;
    node = nodes_[node].first_child + static_cast<uint32_t>(static_cast<const uint8_t*>(found) - children);
  }
  return longest;
}

}  // namespace kvm
