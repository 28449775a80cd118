#ifndef KVM_TOOLS_FLAGS_GRAFT_FLAGS_H_
#define KVM_TOOLS_FLAGS_GRAFT_FLAGS_H_

// Flags that put a stack together from parts of checkpoints.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvm/io/model_file.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/graft.h"
#include "tools/cli/console.h"
#include "tools/cli/flag_set.h"
#include "tools/flags/stack_flags.h"

namespace kvm {

struct GraftFlags {
  std::string base;
  std::vector<std::string> replace;
  std::vector<std::string> graft;
};

// Adds --base, --replace and --graft.
void DefineGraftFlags(FlagSet& flags, GraftFlags* values);

// A stack and the checkpoints that it takes tensors from.
struct Composition {
  StackSpec spec;
  std::vector<std::unique_ptr<OpenedModel>> checkpoints;  // own what `plan` points to
  GraftPlan plan;
  std::string tokenizer_path;  // of --base; empty when it has none, and without --base
};

// The stack of --spec or --pattern, or that of --base with the mixers of --replace and --graft; and what of it comes
// from where. UsageError for flags that contradict each other or are malformed, and the errors of OpenModel, PlanGrafts
// and ValidateStack.
absl::StatusOr<Composition> ComposeStack(const FlagSet& flags, const StackFlags& stack, const GraftFlags& grafts,
                                         Console& console);

}  // namespace kvm

#endif  // KVM_TOOLS_FLAGS_GRAFT_FLAGS_H_
