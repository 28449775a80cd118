#ifndef KVM_IO_HUGGINGFACE_MAIN_AND_ALT_H_
#define KVM_IO_HUGGINGFACE_MAIN_AND_ALT_H_

// Stacks as config.json sees them: one main mixer, and perhaps an alternative one in layers 0, n, 2n, …

#include <string>

#include "absl/status/statusor.h"
#include "kvm/model/stack/stack.pb.h"

namespace kvm {

// Which of a spec's mixers are these, and n.
struct MainAndAlt {
  int main = -1;
  int alt = -1;  // −1: every layer is of the main one
  int alt_every = -1;
};

// InvalidArgument with the reason when a valid spec has more mixers or has them in other layers.
absl::StatusOr<MainAndAlt> FindMainAndAlt(const StackSpec& spec);

// The text of a stack with everything said explicitly that can be said in more than one way, with mixers called main
// and alt, and without what config.json leaves to the tensors: ranks. Equal texts are equal stacks to it.
absl::StatusOr<std::string> MainAndAltText(const StackSpec& spec);

}  // namespace kvm

#endif  // KVM_IO_HUGGINGFACE_MAIN_AND_ALT_H_
