#ifndef KVM_MODEL_STACK_MIXER_KIND_H_
#define KVM_MODEL_STACK_MIXER_KIND_H_

// What a stack has to know of a kind of mixer, in one record: its spec's rules, its tensors, its sizes, its words.
//
// A record is made of plain functions without state, and links no arithmetic. What computes a mixer is apart, because
// each device has its own: kvm/model/mixers/cpu_mixers.h. Kinds of this package are in kvm/model/stack/kinds, one a
// file. One from elsewhere is a record and an extension of MixerSpec:
//
//   extend kvm.MixerSpec { optional EmaSpec ema = 1000; }              // ema.proto
//
//   const MixerKind& EmaKind() {
//     static const MixerKind kind = [] {
//       MixerKind made;
//       made.name = "ema";
//       made.field_number = kEmaFieldNumber;
//       made.check = CheckEma;  ...
//       return made;
//     }();
//     return kind;
//   }
//
//   const MixerKinds kinds = BuiltinMixerKinds().With(EmaKind());
//   ASSIGN_OR_RETURN(const StackSpec spec, ParseStackSpec(text, "ema.textproto", kinds));

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/stack/mixer_sizes.h"
#include "kvm/model/stack/parameter.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/stack/stack_checker.h"
#include "kvm/state/state_size.h"

namespace kvm {

// What a state's size depends on beside the spec; `dtype` and `provenance` are those of ModelOptions.
struct StateQuery {
  DType dtype = DType::kF32;
  int64_t context = 0;  // tokens
  bool provenance = false;
};

// What one token costs a mixer, products with its weights apart. A multiply-add is two operations.
struct MixerCost {
  double flop = 0;
  double bytes = 0;  // of the state, read by a token that comes alone
};

// Sizes that the flags of `kvm build` give; how they make a mixer is its kind's to say.
struct PatternSizes {
  int64_t width = 0;
  int64_t heads = 1;
  int64_t kv_heads = 0;    // 0: as many as heads
  int64_t rwkv_heads = 0;  // 0: of 64 channels
  int64_t rotary = 0;
  bool token_shift = true;
  int64_t chunk = 256;
  int64_t window_chunks = 2;
  int64_t sinks = 1;
  int64_t sliding_window = 256;
  int64_t centroids = 2048;
  int64_t ovq_chunk = 128;
  std::string budget;  // "sqrt:16"
};

// A letter of `kvm build --pattern`.
struct MixerPattern {
  char letter = 0;
  const char* name = nullptr;   // of the mixer in the spec
  const char* title = nullptr;  // in messages
  // Makes the kind's message in a mixer that has a name alone. InvalidArgument naming the flag that cannot be.
  absl::Status (*fill)(const PatternSizes& sizes, MixerSpec* mixer) = nullptr;
};

// The shape of a tensor of the layer, by its name behind "transformer.h.I.attn."; nothing for one that is not there.
using FindShape = absl::FunctionRef<std::optional<Shape>(absl::string_view name)>;

// All functions but `check` take mixers of valid specs. `width` is the stack's.
struct MixerKind {
  // The field of MixerSpec: its name, which no other kind has, and its number.
  const char* name = nullptr;
  int field_number = 0;

  // Every kind has these.

  // Adds every bad field to what `check` has found. `path` is that of the kind's message: "mixers[1].kvm".
  void (*check)(const MixerSpec& mixer, int64_t width, const std::string& path, StackChecker* check) = nullptr;
  // Channels of the values, all heads together: of what AnchorValues gives.
  int64_t (*value_width)(const MixerSpec& mixer, int64_t width) = nullptr;
  // Appends the mixer's tensors in a fixed order; `prefix` is "transformer.h.I.attn.". The only list of them.
  void (*append_parameters)(const MixerSpec& mixer, const LayerPlace& place, const std::string& prefix,
                            std::vector<Parameter>* parameters) = nullptr;
  // The state of one layer: exact, unless is_upper_bound says otherwise.
  StateSize (*state_size)(const MixerSpec& mixer, int64_t width, const StateQuery& query) = nullptr;
  // The cost of a token with `position` tokens before it. What happens once a chunk is shared out over its tokens.
  MixerCost (*token_cost)(const MixerSpec& mixer, int64_t width, DType dtype, int64_t position) = nullptr;
  // In words; up to the first comma what kind it is: "KVM, 6 heads of 128, ...".
  std::string (*describe)(const MixerSpec& mixer, int64_t width) = nullptr;

  // Some kinds have these; null: the kind has no such thing, or the answer is no.

  // Whether values are mixed with a value anchor.
  bool (*has_value_residual)(const MixerSpec& mixer) = nullptr;
  // Whether AnchorValues looks at the row before.
  bool (*anchor_shifts)(const MixerSpec& mixer) = nullptr;
  // The heads, all sizes filled in.
  HeadSizes (*heads)(const MixerSpec& mixer, int64_t width) = nullptr;
  // Of attention-style kinds.
  const ProjectionSpec& (*projections)(const MixerSpec& mixer) = nullptr;
  // Says outright the sizes that other fields imply, and clears the fields that say nothing, or what tensors say.
  void (*resolve)(int64_t width, MixerSpec* mixer) = nullptr;
  // Names of fields whose absence means something else than their default.
  absl::Span<const absl::string_view> meaningful_fields;
  // Tensors that published files hold although nothing reads them.
  std::vector<std::string> (*unread_tensors)(const MixerSpec& mixer, int64_t width,
                                             const std::string& prefix) = nullptr;
  // Takes over the sizes that only a model's tensors say.
  void (*adopt_sizes)(FindShape find, MixerSpec* mixer) = nullptr;
  // Whether state_size is an upper bound.
  bool (*is_upper_bound)(const MixerSpec& mixer) = nullptr;
  // Tokens of the blocks in which a state keeps its window or pending tokens, which the first token takes whole, and
  // how the field is called.
  int64_t (*chunk_len)(const MixerSpec& mixer) = nullptr;
  const char* chunk_field = "chunk_len";
  // Whether ModelOptions::chunked_recurrences changes how it is computed.
  bool is_recurrence = false;
  // Letters of `kvm build --pattern`.
  absl::Span<const MixerPattern> patterns;
};

// Whether a mixer is of a kind.
bool IsOfKind(const MixerSpec& mixer, const MixerKind& kind);

// A list of kinds: a value. Records live as long as the program.
class MixerKinds {
 public:
  // Every record has what every kind has, and no two have a name or number in common.
  explicit MixerKinds(std::vector<const MixerKind*> kinds);

  // These and one more.
  MixerKinds With(const MixerKind& kind) const;

  // Null for a mixer of none of these kinds.
  const MixerKind* Find(const MixerSpec& mixer) const;
  // Of a mixer that is of one of them.
  const MixerKind& Of(const MixerSpec& mixer) const;

  std::vector<const MixerKind*>::const_iterator begin() const { return kinds_.begin(); }
  std::vector<const MixerKind*>::const_iterator end() const { return kinds_.end(); }

  // "attention, kvm, ...", in the order of field numbers.
  std::string Names() const;

 private:
  std::vector<const MixerKind*> kinds_;
};

}  // namespace kvm

#endif  // KVM_MODEL_STACK_MIXER_KIND_H_
