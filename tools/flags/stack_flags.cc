#include "tools/flags/stack_flags.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/stack_file.h"
#include "kvm/model/stack/stack_problems.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

// The largest size and the most layers that ValidateStack allows.
constexpr int64_t kMax = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 4096;

// A cap that no context reaches.
constexpr int32_t kManyChunks = 10000;
// What published growing states begin with.
constexpr int32_t kMinRows = 256;
// Channels of a head in the published configurations, and those of them with rotary embedding.
constexpr int64_t kHeadSize = 128;
constexpr int64_t kRotary = 64;
// Channels of an RWKV-7 head in the published checkpoints.
constexpr int64_t kRwkvHeadSize = 64;

// The mixers of a pattern.
struct PatternMixer {
  char letter;
  const char* name;   // in the spec
  const char* title;  // in messages
};
constexpr PatternMixer kPatternMixers[] = {
    {'R', "rwkv7", "RWKV-7"},
    {'K', "kvm", "KVM"},
    {'A', "attention", "full attention"},
    {'S', "sliding_window", "sliding window"},
    {'B', "block_window", "block window"},
    {'O', "ovq", "OVQ"},
    {'G', "gated_delta_net", "Gated DeltaNet"},
    {'D', "kimi_delta", "Kimi Delta Attention"},
};

// "R RWKV-7, K KVM, ...".
std::string ListPatternMixers() {
  return absl::StrJoin(kPatternMixers, ", ", [](std::string* out, const PatternMixer& mixer) {
    absl::StrAppend(out, std::string(1, mixer.letter), " ", mixer.title);
  });
}

constexpr char kBudgetForms[] = "expected fixed:ROWS, sqrt:FACTOR, power:FACTOR:EXPONENT or saturation:LIMIT";

// The numbers of "kind:1:2", if there are as many as wanted.
bool ParseNumbers(const std::vector<std::string>& parts, size_t count, std::vector<double>* numbers) {
  if (parts.size() != count + 1) return false;
  numbers->resize(count);
  for (size_t i = 0; i < count; ++i) {
    if (!absl::SimpleAtod(parts[i + 1], &(*numbers)[i]) || !std::isfinite((*numbers)[i])) return false;
  }
  return true;
}

bool IsWhole(double value) {
  return value >= 1 && value <= std::numeric_limits<int32_t>::max() && value == std::floor(value);
}

absl::StatusOr<BudgetSpec> ParseBudget(const FlagSet& flags, const StackFlags& values) {
  const std::vector<std::string> parts = absl::StrSplit(values.budget, ':');
  std::vector<double> numbers;
  BudgetSpec budget;
  if (parts[0] == "fixed" && ParseNumbers(parts, 1, &numbers) && IsWhole(numbers[0])) {
    const int64_t rows = static_cast<int64_t>(numbers[0]);
    budget.set_growth(BudgetSpec::FIXED);
    budget.set_min_rows(static_cast<int32_t>(rows));
    budget.set_max_chunks(static_cast<int32_t>((rows + values.chunk - 1) / values.chunk));
  } else if (parts[0] == "sqrt" && ParseNumbers(parts, 1, &numbers)) {
    budget.set_growth(BudgetSpec::POWER_LAW);
    budget.set_factor(numbers[0]);
    budget.set_exponent(0.5);
    budget.set_min_rows(kMinRows);
    budget.set_max_chunks(kManyChunks);
  } else if (parts[0] == "power" && ParseNumbers(parts, 2, &numbers)) {
    budget.set_growth(BudgetSpec::POWER_LAW);
    budget.set_factor(numbers[0]);
    budget.set_exponent(numbers[1]);
    budget.set_min_rows(kMinRows);
    budget.set_max_chunks(kManyChunks);
  } else if (parts[0] == "saturation" && ParseNumbers(parts, 1, &numbers)) {
    budget.set_growth(BudgetSpec::SATURATION);
    budget.set_limit(numbers[0]);
    budget.set_min_rows(1);
    budget.set_max_chunks(kManyChunks);
  } else {
    return flags.Wrong(absl::StrCat("--budget=", values.budget, ": ", kBudgetForms));
  }
  return budget;
}

void FillProjections(const StackFlags& values, ProjectionSpec* projections) {
  projections->set_num_heads(static_cast<int32_t>(values.heads));
  if (values.kv_heads > 0) projections->set_num_kv_heads(static_cast<int32_t>(values.kv_heads));
  projections->set_rotary_dim(static_cast<int32_t>(values.rotary));
  projections->set_token_shift(values.token_shift);
}

// The sizes that the published configurations have by default: keys of 3/4 and values of 3/2 of the width.
void FillGatedDeltaNet(const StackFlags& values, GatedDeltaNetSpec* spec) {
  spec->set_num_heads(static_cast<int32_t>(values.heads));
  spec->set_qk_head_dim(static_cast<int32_t>(std::max<int64_t>(1, values.width * 3 / (4 * values.heads))));
  spec->set_v_head_dim(static_cast<int32_t>(std::max<int64_t>(1, values.width * 3 / (2 * values.heads))));
}

// Without rotary embedding, which this mixer does not have, and with as many key/value heads as heads.
void FillOvq(const StackFlags& values, OvqSpec* spec) {
  spec->mutable_projections()->set_num_heads(static_cast<int32_t>(values.heads));
  spec->mutable_projections()->set_token_shift(values.token_shift);
  spec->set_chunk_len(static_cast<int32_t>(values.ovq_chunk));
  spec->set_max_centroids(static_cast<int32_t>(values.centroids));
}

// Makes the mixer of a letter; its name is set already.
absl::Status FillMixer(const FlagSet& flags, const StackFlags& values, char letter, MixerSpec* mixer) {
  switch (letter) {
    case 'R': {
      if (values.rwkv_heads == 0 && values.width > kRwkvHeadSize && values.width % kRwkvHeadSize != 0) {
        return flags.Wrong(absl::StrCat("--width=", values.width, " is no multiple of ", kRwkvHeadSize,
                                        ", the channels of an RWKV-7 head; say how many there are with --rwkv-heads"));
      }
      const int64_t heads =
          values.rwkv_heads > 0 ? values.rwkv_heads : std::max<int64_t>(1, values.width / kRwkvHeadSize);
      mixer->mutable_rwkv7()->set_num_heads(static_cast<int32_t>(heads));
      return absl::OkStatus();
    }
    case 'K': {
      KvmSpec* kvm = mixer->mutable_kvm();
      FillProjections(values, kvm->mutable_projections());
      kvm->set_chunk_len(static_cast<int32_t>(values.chunk));
      kvm->set_window_chunks(static_cast<int32_t>(values.window_chunks));
      kvm->set_num_sinks(static_cast<int32_t>(values.sinks));
      ASSIGN_OR_RETURN(*kvm->mutable_budget(), ParseBudget(flags, values));
      return absl::OkStatus();
    }
    case 'A':
      FillProjections(values, mixer->mutable_attention()->mutable_projections());
      return absl::OkStatus();
    case 'S':
      FillProjections(values, mixer->mutable_attention()->mutable_projections());
      mixer->mutable_attention()->set_window(static_cast<int32_t>(values.sliding_window));
      return absl::OkStatus();
    case 'B': {
      BlockWindowSpec* window = mixer->mutable_block_window();
      FillProjections(values, window->mutable_projections());
      window->set_chunk_len(static_cast<int32_t>(values.chunk));
      window->set_window_chunks(static_cast<int32_t>(values.window_chunks));
      window->set_num_sinks(static_cast<int32_t>(values.sinks));
      return absl::OkStatus();
    }
    case 'O':
      FillOvq(values, mixer->mutable_ovq());
      return absl::OkStatus();
    case 'G':
      FillGatedDeltaNet(values, mixer->mutable_gated_delta_net());
      return absl::OkStatus();
    default:
      mixer->mutable_kimi_delta()->set_num_heads(static_cast<int32_t>(values.heads));
      return absl::OkStatus();
  }
}

// Null for letters that stand for no mixer.
const char* MixerName(char letter) {
  for (const PatternMixer& mixer : kPatternMixers) {
    if (mixer.letter == letter) return mixer.name;
  }
  return nullptr;
}

// The flags that describe a stack beside its mixers, and those that describe mixers.
constexpr const char* kBackboneFlags[] = {"layers", "width", "vocab", "mlp-expansion", "residual-scale"};
constexpr const char* kMixerFlags[] = {"heads",         "kv-heads",  "rwkv-heads", "chunk",
                                       "window-chunks", "sinks",     "budget",     "sliding-window",
                                       "centroids",     "ovq-chunk", "rotary",     "token-shift"};

absl::Status WrongLetter(const FlagSet& flags, absl::string_view flag, char letter) {
  return flags.Wrong(absl::StrCat(flag, ": '", std::string(1, letter),
                                  "' is no mixer; expected letters of these: ", ListPatternMixers()));
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
    const char* name = MixerName(letter);
    if (name == nullptr) {
      return WrongLetter(flags, absl::StrCat("--pattern=", values.pattern), letter);
    }
    const auto has_name = [name](const MixerSpec& mixer) { return mixer.name() == name; };
    if (std::none_of(spec.mixers().begin(), spec.mixers().end(), has_name)) {
      MixerSpec* mixer = spec.add_mixers();
      mixer->set_name(name);
      RETURN_IF_ERROR(FillMixer(flags, values, letter, mixer));
    }
  }
  for (int64_t i = 0; i < values.layers; ++i) spec.add_layers(MixerName(values.pattern[i % period]));
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
               absl::StrCat("mixers, repeated until --layers: ", ListPatternMixers()));
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
  const char* name = MixerName(letter);
  if (name == nullptr) return WrongLetter(flags, "--replace", letter);
  MixerSpec mixer;
  mixer.set_name(name);
  RETURN_IF_ERROR(FillMixer(flags, values, letter, &mixer));
  // Alone in a stack, so that what is wrong is what flags say.
  StackSpec spec;
  spec.set_width(static_cast<int32_t>(values.width));
  spec.add_layers(name);
  *spec.add_mixers() = mixer;
  RETURN_IF_ERROR(CheckStackOfFlags(flags, spec));
  return mixer;
}

}  // namespace kvm
