#ifndef KVM_TOOLS_FLAGS_STACK_FLAGS_H_
#define KVM_TOOLS_FLAGS_STACK_FLAGS_H_

// Flags that describe the common stacks, so that they need no spec file.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/model/stack/stack.pb.h"
#include "tools/cli/flag_set.h"

namespace kvm {

// The defaults are those of the published 120M models.
struct StackFlags {
  std::string spec;
  std::string pattern;
  int64_t layers = 12;
  int64_t width = 768;
  int64_t heads = 0;       // as the width says
  int64_t kv_heads = 0;    // as many as heads
  int64_t rwkv_heads = 0;  // heads of 64 channels
  int64_t vocab = 50304;
  int64_t chunk = 256;
  int64_t window_chunks = 2;
  int64_t sinks = 1;
  int64_t sliding_window = 256;
  int64_t centroids = 2048;
  int64_t ovq_chunk = 128;
  std::string budget = "sqrt:16";
  int64_t rotary = -1;  // as the heads say
  double mlp_expansion = 4;
  double residual_scale = 1;
  bool token_shift = true;
};

// With heads and rotary channels where none are given: heads of 128 channels, or of the number nearest to that, by
// their ratio, that divides the width; 64 rotary channels, or half of a head's where it has less than 128.
StackFlags WithHeads(const StackFlags& values);

// Adds --spec, --pattern and what goes with it.
void DefineStackFlags(FlagSet& flags, StackFlags* values);

// The stack of --spec, or the one that the others describe. UsageError for flags that contradict each other or are
// malformed; errors of ParseStackSpec and ValidateStack.
absl::StatusOr<StackSpec> ResolveStack(const FlagSet& flags, const StackFlags& values);

// A UsageError that ends with `why` when a flag is set that describes a stack beside its mixers, or a mixer.
absl::Status CheckNoBackboneFlags(const FlagSet& flags, absl::string_view why);
absl::Status CheckNoMixerFlags(const FlagSet& flags, absl::string_view why);

// The mixer of one letter of a pattern; values.width is the stack's. UsageError for a letter that is none, and for
// sizes that such a mixer cannot have, by their flags.
absl::StatusOr<MixerSpec> MixerOfLetter(const FlagSet& flags, const StackFlags& values, char letter);

}  // namespace kvm

#endif  // KVM_TOOLS_FLAGS_STACK_FLAGS_H_
