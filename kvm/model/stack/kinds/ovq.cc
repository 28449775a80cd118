// Online vector quantization: attention over a dictionary of centroids and the chunk being filled. New
// tensors begin as parameter.h says; beta 1.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kvm/base/format_count.h"
#include "kvm/kernels/ovq_schedule.h"
#include "kvm/model/stack/kinds/kind_sizes.h"
#include "kvm/model/stack/kinds/kinds.h"
#include "kvm/model/stack/kinds/projections.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/state/block_window.h"
#include "kvm/state/ovq_memory.h"

namespace kvm {
namespace {

const ProjectionSpec& OvqProjections(const MixerSpec& mixer) { return mixer.ovq().projections(); }
ProjectionSpec* MutableOvqProjections(MixerSpec* mixer) { return mixer->mutable_ovq()->mutable_projections(); }

void CheckOvq(const MixerSpec& mixer, int64_t width, const std::string& path, StackChecker* check) {
  const OvqSpec& spec = mixer.ovq();
  const std::string projections = absl::StrCat(path, ".projections");
  const size_t problems_before = check->count();
  CheckProjections(spec.projections(), width, RotaryUse::kNone, projections, check);
  if (check->count() == problems_before && width >= 1) {
    const HeadSizes heads = ResolveHeads(spec.projections(), width);
    if (heads.num_kv_heads != heads.num_heads) {
      check->Add(absl::StrCat(projections, ".num_kv_heads"), absl::StrCat(heads.num_kv_heads),
                 absl::StrCat("the number of heads (", heads.num_heads, "), as ovq has no key/value groups"));
    }
    if (heads.v_dim != heads.qk_dim) {
      check->Add(absl::StrCat(projections, ".v_head_dim"), absl::StrCat(heads.v_dim),
                 absl::StrCat("qk_head_dim (", heads.qk_dim, ")"));
    } else if (heads.num_heads * heads.v_dim != width) {
      check->Add(absl::StrCat(projections, ".v_head_dim times num_heads"), absl::StrCat(heads.num_heads * heads.v_dim),
                 absl::StrCat("the width (", width, ")"));
    }
  }
  check->Whole(absl::StrCat(path, ".chunk_len"), spec.chunk_len(), 1);
  check->Whole(absl::StrCat(path, ".max_centroids"), spec.max_centroids(), 1);
}

void AppendOvqParameters(const MixerSpec& mixer, const LayerPlace& place, const std::string& prefix,
                         std::vector<Parameter>* parameters) {
  const ProjectionSpec& projections = mixer.ovq().projections();
  AppendProjectionParameters(projections, /*head_norms=*/false, place, prefix, parameters);
  AppendVector(prefix + "beta", {projections.num_heads()}, Initialization::Fill(1), parameters);
}

StateSize OvqSize(const MixerSpec& mixer, int64_t width, const StateQuery& query) {
  const OvqSpec& spec = mixer.ovq();
  const HeadSizes heads = ResolveHeads(spec.projections(), width);
  const BlockWindowShape shape = {heads.num_heads, heads.qk_dim, heads.v_dim, spec.chunk_len(),
                                  WindowDType(query.dtype)};
  const int64_t pending = query.context % spec.chunk_len();
  StateSize size;
  size.rows = DictionarySize(ToOvqSchedule(spec), query.context - pending);
  size.bytes = ShiftHistoryBytes(spec.projections(), width) +
               BlocksOf(pending, spec.chunk_len()) * BlockWindow::BlockByteSize(shape) +
               heads.num_heads * OvqMemory::ByteSizeOf(size.rows, heads.v_dim);
  return size;
}

MixerCost CostOfOvq(const MixerSpec& mixer, int64_t width, DType dtype, int64_t position) {
  const OvqSpec& spec = mixer.ovq();
  const HeadSizes heads = ResolveHeads(spec.projections(), width);
  const int64_t before_chunk = position / spec.chunk_len() * spec.chunk_len();
  const int64_t rows = DictionarySize(ToOvqSchedule(spec), before_chunk);
  const MixerCost pending = CostOfKeys(heads, position + 1 - before_chunk, WindowDType(dtype));
  const MixerCost dictionary = CostOfKeys(heads, rows, DType::kF32);
  const double routing = 2 * SizeProduct(heads.num_heads, heads.qk_dim, rows);
  return {pending.flop + dictionary.flop + routing, pending.bytes + dictionary.bytes};
}

std::string DescribeOvq(const MixerSpec& mixer, int64_t width) {
  const OvqSpec& spec = mixer.ovq();
  return absl::StrCat("OVQ, ", DescribeHeads(spec.projections(), width), ", chunks of ", spec.chunk_len(), ", up to ",
                      FormatCounted(spec.max_centroids(), "centroid"), spec.delta_rule() ? ", delta rule" : "");
}

// Without rotary embedding, which this mixer does not have, and with as many key/value heads as heads.
absl::Status FillOvq(const PatternSizes& sizes, MixerSpec* mixer) {
  OvqSpec* spec = mixer->mutable_ovq();
  spec->mutable_projections()->set_num_heads(static_cast<int32_t>(sizes.heads));
  spec->mutable_projections()->set_token_shift(sizes.token_shift);
  spec->set_chunk_len(static_cast<int32_t>(sizes.ovq_chunk));
  spec->set_max_centroids(static_cast<int32_t>(sizes.centroids));
  return absl::OkStatus();
}

constexpr MixerPattern kPatterns[] = {{'O', "ovq", "OVQ", FillOvq}};

}  // namespace

const MixerKind& OvqKind() {
  static const MixerKind kind = [] {
    MixerKind made;
    made.name = "ovq";
    made.field_number = MixerSpec::kOvqFieldNumber;
    SetProjectionFacts<OvqProjections, MutableOvqProjections>(&made);
    made.check = CheckOvq;
    made.append_parameters = AppendOvqParameters;
    made.state_size = OvqSize;
    made.token_cost = CostOfOvq;
    made.describe = DescribeOvq;
    made.chunk_len = [](const MixerSpec& mixer) -> int64_t { return mixer.ovq().chunk_len(); };
    made.chunk_field = "chunk_len (ovq_chunk_size)";
    made.patterns = kPatterns;
    return made;
  }();
  return kind;
}

}  // namespace kvm
