#ifndef KVM_MODEL_WEIGHTS_GRAFT_H_
#define KVM_MODEL_WEIGHTS_GRAFT_H_

// Stacks put together from parts of checkpoints: which tensors come from where.
//
//   ASSIGN_OR_RETURN(const StackPart part, ParseStackPart("mixer:3,7"));
//   ASSIGN_OR_RETURN(const GraftPlan plan, PlanGrafts(spec, {{part, {"kvm-120m", &other.spec, other.weights.get()}}}));
//   const std::unique_ptr<WeightSource> weights = GraftWeights(spec, plan, *new_weights);

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

// What of a stack is meant.
struct StackPart {
  enum class Kind {
    kAll,
    kEmbedding,  // wte and ln_emb
    kHead,       // ln_head and lm_head
    kLayers,     // whole layers: mixer, MLP, norms
    kMixers,     // of layers the mixer alone
    kMlps,       // of layers everything but the mixer: MLP, norms, lambdas
  };
  Kind kind = Kind::kAll;
  std::vector<int> layers;         // of kLayers, kMixers and kMlps; ascending
  std::vector<int> without_mixer;  // layers whose mixer is not meant
};

// "all", "embedding", "head", "0-3,7", "mixer:0-3,7" or "mlp:0-3,7". InvalidArgument that says so for anything else.
absl::StatusOr<StackPart> ParseStackPart(absl::string_view text);

// The layers of "0-3,7". InvalidArgument, as above.
absl::StatusOr<std::vector<int>> ParseLayers(absl::string_view text);

// A checkpoint to take from; both pointers must outlive all that is made of it.
struct GraftSource {
  std::string name;  // in reports and messages
  const StackSpec* spec = nullptr;
  const WeightSource* weights = nullptr;
};

struct Graft {
  StackPart part;
  GraftSource source;
};

// The sources of a stack's tensors.
struct GraftPlan {
  std::vector<GraftSource> sources;
  struct Origin {
    int source = 0;    // index into `sources`
    std::string name;  // of the tensor there
  };
  std::map<std::string, Origin, std::less<>> origins;  // by the stack's tensor; those without one are to be new
};

// Finds every tensor that the grafts speak of: layer i comes from layer i, of a source with a tied head the head comes
// from the embedding, and a later graft overrides an earlier one. InvalidArgument that lists all layers that a stack
// lacks or that have mixers of different kinds, and all tensors that are missing or have another shape.
absl::StatusOr<GraftPlan> PlanGrafts(const StackSpec& spec, absl::Span<const Graft> grafts,
                                     const MixerKinds& kinds = BuiltinMixerKinds());

// The tensors of the plan, to the bit as they are in their sources, and all others of `spec` from `fresh`, which
// must outlive the result.
std::unique_ptr<WeightSource> GraftWeights(const StackSpec& spec, const GraftPlan& plan, const WeightSource& fresh,
                                           const MixerKinds& kinds = BuiltinMixerKinds());

// Where everything comes from, in lines: part, origin. `fresh` is how the origin of new tensors is called.
struct GraftLine {
  std::string part;
  std::string origin;
};
std::vector<GraftLine> DescribeGrafts(const StackSpec& spec, const GraftPlan& plan, const std::string& fresh,
                                      const MixerKinds& kinds = BuiltinMixerKinds());

// Gives layers of a stack another mixer. Mixers that no layer has any more go away. InvalidArgument for a layer that
// the stack lacks, and when the stack is none afterwards.
absl::Status ReplaceMixers(const std::vector<int>& layers, MixerSpec mixer, StackSpec* spec,
                           const MixerKinds& kinds = BuiltinMixerKinds());

// Gives layers of a stack the mixers that these layers have in `source`; `name` is the source's in messages.
// InvalidArgument, too, for a mixer there that has another one's value anchor, unless all layers get theirs.
absl::Status AdoptMixers(const std::vector<int>& layers, const StackSpec& source, const std::string& name,
                         StackSpec* spec, const MixerKinds& kinds = BuiltinMixerKinds());

}  // namespace kvm

#endif  // KVM_MODEL_WEIGHTS_GRAFT_H_
