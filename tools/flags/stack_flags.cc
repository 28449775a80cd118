#include "tools/flags/stack_flags.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/stack_file.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/stack_limits.h"
#include "kvm/model/stack/stack_problems.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

constexpr int64_t kMax = kMaxSpecSize;

// Channels of a head in the published configurations, and those of them with rotary embedding.
constexpr int64_t kHeadSize = 128;
constexpr int64_t kRotary = 64;

std::vector<const MixerPattern*> AllPatterns() {
  std::vector<const MixerPattern*> patterns;
  for (const MixerKind* kind : BuiltinMixerKinds()) {
    for (const MixerPattern& pattern : kind->patterns) patterns.push_back(&pattern);
  }
  return patterns;
}

// Null for letters that stand for no mixer.
const MixerPattern* FindPattern(char letter) {
  for (const MixerPattern* pattern : AllPatterns()) {
    if (pattern->letter == letter) return pattern;
  }
  return nullptr;
}

// "R RWKV-7, K KVM, ...".
std::string ListPatterns() {
  return absl::StrJoin(AllPatterns(), ", ", [](std::string* out, const MixerPattern* pattern) {
    absl::StrAppend(out, std::string(1, pattern->letter), " ", pattern->title);
  });
}

// The mixer of a pattern's letter; `values` have heads.
absl::StatusOr<MixerSpec> MakeMixer(const FlagSet& flags, const StackFlags& values, const MixerPattern& pattern) {
  PatternSizes sizes;
  sizes.width = values.width;
  sizes.heads = values.heads;
  sizes.kv_heads = values.kv_heads;
  sizes.rwkv_heads = values.rwkv_heads;
  sizes.rotary = values.rotary;
  sizes.token_shift = values.token_shift;
  sizes.chunk = values.chunk;
  sizes.window_chunks = values.window_chunks;
  sizes.sinks = values.sinks;
  sizes.sliding_window = values.sliding_window;
  sizes.centroids = values.centroids;
  sizes.ovq_chunk = values.ovq_chunk;
  sizes.budget = values.budget;
  MixerSpec mixer;
  mixer.set_name(pattern.name);
  const absl::Status filled = pattern.fill(sizes, &mixer);
  if (!filled.ok()) return flags.Wrong(std::string(filled.message()));
  return mixer;
}

// The flags that describe a stack beside its mixers, and those that describe mixers.
constexpr const char* kBackboneFlags[] = {"layers", "width", "vocab", "mlp-expansion", "residual-scale"};
constexpr const char* kMixerFlags[] = {"heads",         "kv-heads",  "rwkv-heads", "chunk",
                                       "window-chunks", "sinks",     "budget",     "sliding-window",
                                       "centroids",     "ovq-chunk", "rotary",     "token-shift"};

absl::Status WrongLetter(const FlagSet& flags, absl::string_view flag, char letter) {
  return flags.Wrong(
      absl::StrCat(flag, ": '", std::string(1, letter), "' is no mixer; expected letters of these: ", ListPatterns()));
}

// The flag that sets a field; null where none does. `path` is that of a StackProblem.
const char* FlagOfField(absl::string_view path) {
  static constexpr const char* kFlags[][2] = {
      {"vocab_size", "vocab"},
      {"width", "width"},
      {"layers", "layers"},
      {"mlp_expansion", "mlp-expansion"},
      {"residual_scale", "residual-scale"},
      {".rwkv7.num_heads", "rwkv-heads"},
      {".projections.num_heads", "heads"},
      {".qk_head_dim times num_heads", "width"},
      {".v_head_dim times num_heads", "width"},
      {".projections.num_kv_heads", "kv-heads"},
      {".projections.rotary_dim", "rotary"},
      {".kvm.chunk_len", "chunk"},
      {".kvm.window_chunks", "window-chunks"},
      {".kvm.num_sinks", "sinks"},
      {".block_window.chunk_len", "chunk"},
      {".block_window.window_chunks", "window-chunks"},
      {".block_window.num_sinks", "sinks"},
      {".ovq.chunk_len", "ovq-chunk"},
      {".ovq.max_centroids", "centroids"},
      {".gated_delta_net.num_heads", "heads"},
      {".kimi_delta.num_heads", "heads"},
      {".attention.window", "sliding-window"},
      {".budget.factor", "budget"},
      {".budget.exponent", "budget"},
      {".budget.limit", "budget"},
      {".budget.min_rows", "budget"},
      {".budget.max_chunks", "budget"},
  };
  for (const auto& [field, flag] : kFlags) {
    if (field[0] == '.' ? absl::EndsWith(path, field) : path == field) return flag;
  }
  return nullptr;
}

// ValidateStack for a stack of flags: UsageError that names them.
absl::Status CheckStackOfFlags(const FlagSet& flags, const StackSpec& spec) {
  std::vector<std::string> lines;
  for (const StackProblem& problem : FindStackProblems(spec)) {
    const char* flag = FlagOfField(problem.path);
    std::string line = absl::StrCat(flag == nullptr ? problem.path : absl::StrCat("--", flag), ": got ", problem.got,
                                    ", expected ", problem.expected);
    // Several mixers may share a flag and its fault.
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(std::move(line));
  }
  return lines.empty() ? absl::OkStatus() : flags.Wrong(absl::StrJoin(lines, "; "));
}

int64_t HeadsOfWidth(int64_t width) {
  const auto distance = [](int64_t channels) {
    return static_cast<double>(std::max(channels, kHeadSize)) / static_cast<double>(std::min(channels, kHeadSize));
  };
  int64_t nearest = width;
  for (int64_t divisor = 1; divisor * divisor <= width; ++divisor) {
    if (width % divisor != 0) continue;
    for (const int64_t channels : {divisor, width / divisor}) {
      if (distance(channels) < distance(nearest)) nearest = channels;
    }
  }
  return width / nearest;
}

absl::StatusOr<StackSpec> StackOfPattern(const FlagSet& flags, const StackFlags& given) {
  const StackFlags values = WithHeads(given);
  StackSpec spec;
  spec.set_vocab_size(static_cast<int32_t>(values.vocab));
  spec.set_width(static_cast<int32_t>(values.width));
  const int64_t period = static_cast<int64_t>(values.pattern.size());
  if (values.layers % period != 0) {
    return flags.Wrong(absl::StrCat("--layers=", values.layers, " is no multiple of the ", period,
                                    " layers in --pattern=", values.pattern));
  }
  for (const char letter : values.pattern) {
    const MixerPattern* pattern = FindPattern(letter);
    if (pattern == nullptr) return WrongLetter(flags, absl::StrCat("--pattern=", values.pattern), letter);
    const auto has_name = [pattern](const MixerSpec& mixer) { return mixer.name() == pattern->name; };
    if (std::none_of(spec.mixers().begin(), spec.mixers().end(), has_name)) {
      ASSIGN_OR_RETURN(*spec.add_mixers(), MakeMixer(flags, values, *pattern));
    }
  }
  for (int64_t i = 0; i < values.layers; ++i) spec.add_layers(FindPattern(values.pattern[i % period])->name);
  spec.set_mlp_expansion(values.mlp_expansion);
  spec.set_mlp_token_shift(values.token_shift);
  if (values.residual_scale != 1) spec.set_residual_scale(values.residual_scale);
  RETURN_IF_ERROR(CheckStackOfFlags(flags, spec));
  return spec;
}

}  // namespace

StackFlags WithHeads(const StackFlags& values) {
  StackFlags whole = values;
  if (whole.heads == 0) whole.heads = HeadsOfWidth(whole.width);
  // An even number.
  if (whole.rotary < 0) whole.rotary = std::min(kRotary, whole.width / whole.heads / 4 * 2);
  return whole;
}

void DefineStackFlags(FlagSet& flags, StackFlags* values) {
  flags.String("spec", &values->spec, "FILE", "a stack as .textproto (see kvm/model/stack/stack.proto)");
  flags.String("pattern", &values->pattern, "LETTERS",
               absl::StrCat("mixers, repeated until --layers: ", ListPatterns()));
  flags.Int64("layers", &values->layers, 1, kMaxLayers, "layers of the stack");
  flags.Int64("width", &values->width, 1, kMax, "channels of the residual stream");
  flags.Int64("heads", &values->heads, 1, kMax, "heads of all mixers but R");
  flags.DefaultText("heads", "of 128 channels, or the nearest number that divides --width");
  flags.Int64("kv-heads", &values->kv_heads, 0, kMax, "key/value heads of K, A, S and B; 0: as many");
  flags.Int64("rwkv-heads", &values->rwkv_heads, 0, kMax,
              "heads of R; 0: heads of 64 channels, of which --width must be a multiple, or one head if it is less");
  flags.Int64("vocab", &values->vocab, 1, kMax, "size of the vocabulary");
  flags.Int64("chunk", &values->chunk, 1, kMax, "tokens of a chunk of K and B");
  flags.Int64("window-chunks", &values->window_chunks, 1, kMax, "chunks in the window of K and B");
  flags.Int64("sinks", &values->sinks, 0, kMax, "rows of K that take no merges; first tokens that B always sees");
  flags.Int64("sliding-window", &values->sliding_window, 1, kMax, "tokens that S sees");
  flags.Int64("centroids", &values->centroids, 1, kMax, "largest dictionary of O");
  flags.Int64("ovq-chunk", &values->ovq_chunk, 1, kMax, "tokens of a chunk of O");
  flags.String("budget", &values->budget, "B",
               "rows of K: fixed:ROWS, sqrt:FACTOR, power:FACTOR:EXPONENT or saturation:LIMIT; those of sqrt and power "
               "are never fewer than 256, and none are fewer than those of the first chunk");
  flags.Int64("rotary", &values->rotary, 0, kMax, "channels of a head with rotary embedding in K, A, S and B");
  flags.DefaultText("rotary", "64, or half of a smaller head");
  flags.Double("mlp-expansion", &values->mlp_expansion, 0, 1000, "inner width of the MLP over --width",
               FlagSet::Ends::kMax);
  flags.Double("residual-scale", &values->residual_scale, 0, 1000, "factor of what layers add");
  flags.Bool("token-shift", &values->token_shift, "mix each token with the one before in K, A, S, B, O and the MLP");
}

absl::StatusOr<StackSpec> ResolveStack(const FlagSet& flags, const StackFlags& values) {
  if (flags.IsSet("spec") && flags.IsSet("pattern")) return flags.Wrong("give --spec or --pattern, not both");
  if (!values.pattern.empty()) return StackOfPattern(flags, values);
  if (values.spec.empty()) return flags.Wrong("--spec=FILE or --pattern=LETTERS is missing");
  RETURN_IF_ERROR(CheckNoBackboneFlags(flags, "goes with --pattern; --spec says it all"));
  RETURN_IF_ERROR(CheckNoMixerFlags(flags, "goes with --pattern; --spec says it all"));
  return ReadStackFile(values.spec);
}

absl::Status CheckNoBackboneFlags(const FlagSet& flags, absl::string_view why) {
  for (const char* name : kBackboneFlags) {
    if (flags.IsSet(name)) return flags.Wrong(absl::StrCat("--", name, " ", why));
  }
  return absl::OkStatus();
}

absl::Status CheckNoMixerFlags(const FlagSet& flags, absl::string_view why) {
  for (const char* name : kMixerFlags) {
    if (flags.IsSet(name)) return flags.Wrong(absl::StrCat("--", name, " ", why));
  }
  return absl::OkStatus();
}

absl::StatusOr<MixerSpec> MixerOfLetter(const FlagSet& flags, const StackFlags& given, char letter) {
  const StackFlags values = WithHeads(given);
  const MixerPattern* pattern = FindPattern(letter);
  if (pattern == nullptr) return WrongLetter(flags, "--replace", letter);
  ASSIGN_OR_RETURN(MixerSpec mixer, MakeMixer(flags, values, *pattern));
  // Alone in a stack, so that what is wrong is what flags say.
  StackSpec spec;
  spec.set_width(static_cast<int32_t>(values.width));
  spec.add_layers(pattern->name);
  *spec.add_mixers() = mixer;
  RETURN_IF_ERROR(CheckStackOfFlags(flags, spec));
  return mixer;
}

}  // namespace kvm
