#ifndef KVM_MODEL_STACK_KINDS_PROJECTIONS_H_
#define KVM_MODEL_STACK_KINDS_PROJECTIONS_H_

// What all kinds with a ProjectionSpec have in common.

#include <cstdint>
#include <string>
#include <vector>

#include "kvm/kernels/dtype.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/mixer_sizes.h"
#include "kvm/model/stack/parameter.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/stack/stack_checker.h"

namespace kvm {

// What a mixer does with the rotary fields of its projections.
enum class RotaryUse { kAnyChannels, kNotAllChannels, kNone };

// As MixerKind::check; `path` is that of the projections.
void CheckProjections(const ProjectionSpec& spec, int64_t width, RotaryUse rotary, const std::string& path,
                      StackChecker* check);

// As MixerKind::append_parameters: what such kinds begin and end with; norms of queries and keys if `head_norms`.
void AppendProjectionParameters(const ProjectionSpec& spec, bool head_norms, const LayerPlace& place,
                                const std::string& prefix, std::vector<Parameter>* parameters);

// Bytes of the last inputs that the token shift looks at.
int64_t ShiftHistoryBytes(const ProjectionSpec& spec, int64_t width);

// Blocks of `block_len` positions, the last perhaps in part.
int64_t BlocksOf(int64_t positions, int64_t block_len);

// Where the window of `total` tokens begins.
int64_t WindowBegin(int64_t total, int64_t chunk, int64_t window_chunks);

// `keys` seen by every query head, kept once a key/value head in `dtype`.
MixerCost CostOfKeys(const HeadSizes& heads, int64_t keys, DType dtype);

// "6 heads of 128, 2 key/value heads".
std::string DescribeHeads(const ProjectionSpec& projections, int64_t width);
// ", rotary 64".
std::string DescribeRotary(const ProjectionSpec& projections);
// "window 2 chunks of 256".
std::string DescribeWindow(int64_t chunks, int64_t chunk_len);

// As the sizes say.
void FillProjections(const PatternSizes& sizes, ProjectionSpec* projections);

// Sets what a ProjectionSpec alone says of a kind: projections, heads, value_width, has_value_residual, resolve,
// unread_tensors and adopt_sizes. Get and Mutable find the spec in the kind's message.
template <const ProjectionSpec& (*Get)(const MixerSpec& mixer), ProjectionSpec* (*Mutable)(MixerSpec* mixer)>
void SetProjectionFacts(MixerKind* kind);

// Behind that template.
namespace projections_internal {
bool HasValueResidual(const ProjectionSpec& spec);
int64_t ValueWidth(const ProjectionSpec& spec, int64_t width);
void Resolve(int64_t width, ProjectionSpec* spec);
std::vector<std::string> UnreadTensors(const ProjectionSpec& spec, int64_t width, const std::string& prefix);
void AdoptSizes(FindShape find, ProjectionSpec* spec);
}  // namespace projections_internal

template <const ProjectionSpec& (*Get)(const MixerSpec& mixer), ProjectionSpec* (*Mutable)(MixerSpec* mixer)>
void SetProjectionFacts(MixerKind* kind) {
  namespace facts = projections_internal;
  kind->projections = Get;
  kind->has_value_residual = [](const MixerSpec& mixer) { return facts::HasValueResidual(Get(mixer)); };
  kind->heads = [](const MixerSpec& mixer, int64_t width) { return ResolveHeads(Get(mixer), width); };
  kind->value_width = [](const MixerSpec& mixer, int64_t width) { return facts::ValueWidth(Get(mixer), width); };
  kind->resolve = [](int64_t width, MixerSpec* mixer) { facts::Resolve(width, Mutable(mixer)); };
  kind->unread_tensors = [](const MixerSpec& mixer, int64_t width, const std::string& prefix) {
    return facts::UnreadTensors(Get(mixer), width, prefix);
  };
  kind->adopt_sizes = [](FindShape find, MixerSpec* mixer) { facts::AdoptSizes(find, Mutable(mixer)); };
}

}  // namespace kvm

#endif  // KVM_MODEL_STACK_KINDS_PROJECTIONS_H_
