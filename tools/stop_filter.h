#ifndef KVM_TOOLS_STOP_FILTER_H_
#define KVM_TOOLS_STOP_FILTER_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace kvm {

// Cuts a stream of text before the first stop string, wherever the pieces end.
class StopFilter {
 public:
  // Empty strings are ignored.
  explicit StopFilter(std::vector<std::string> stops);

  // The text that is certain to stand before any stop string. What may be the beginning of one is held back.
  std::string Add(absl::string_view text);

  // What was held back, at the end of the stream.
  std::string Finish();

  // Whether a stop string has been seen.
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace kvm

#endif  // KVM_TOOLS_STOP_FILTER_H_
