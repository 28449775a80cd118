#include "testing/golden_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/model_folder.h"
#include "kvm/kernels/cpu/pointwise/rotary.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack/stack_spec.h"
#include "testing/conformance/model_runs.h"
#include "testing/golden_file.h"
#include "testing/golden_layer_check.h"

namespace kvm {
namespace {

// All sequences of a golden folder after one way of feeding them.
struct BatchRun {
  std::vector<SequenceRun> runs;                 // [B]
  std::vector<std::vector<NamedTensor>> states;  // [B], after all tokens
};

struct Context {
  GoldenFile golden;
  const LanguageModel& model;
  const GoldenOptions& options;
  ExecutionContext execution;
  GoldenReport report;

  GoldenLine* NewLine(const std::string& quantity, double tolerance) {
    report.lines.push_back({quantity, 0, tolerance, ""});
    return &report.lines.back();
  }
};

double LargestEntry(absl::Span<const float> values) {
  double largest = 0;
  for (const float v : values) largest = std::max(largest, std::abs(static_cast<double>(v)));
  return largest > 0 ? largest : 1;
}

absl::StatusOr<BatchRun> Run(Context& context, const std::vector<int64_t>& pieces, bool batched) {
  BatchRun result;
  std::vector<SequenceState> sequences;
  std::vector<RunInput> inputs;
  for (int64_t b = 0; b < context.golden.batch(); ++b) sequences.push_back(context.model.NewSequence());
  for (int64_t b = 0; b < context.golden.batch(); ++b) {
    inputs.push_back({&sequences[b], context.golden.tokens()[b], pieces});
  }
  if (batched) {
    ASSIGN_OR_RETURN(result.runs, RunInPieces(context.model, inputs, context.execution));
  } else {
    for (const RunInput& input : inputs) {
      ASSIGN_OR_RETURN(std::vector<SequenceRun> run, RunInPieces(context.model, {input}, context.execution));
      result.runs.push_back(std::move(run[0]));
    }
  }
  for (const SequenceState& sequence : sequences) {
    ASSIGN_OR_RETURN(std::vector<NamedTensor> state, sequence.Export());
    result.states.push_back(std::move(state));
  }
  return result;
}

absl::Status CheckLogits(const BatchRun& whole, const BatchRun& decoded, Context& context) {
  GoldenFile& golden = context.golden;
  const int64_t batch = golden.batch(), length = golden.length(), prefill = golden.prefill_len();
  const int64_t vocab = context.model.vocab_size();
  ASSIGN_OR_RETURN(const std::vector<float> full, golden.Floats("logits_full", {batch, length, vocab}));
  ASSIGN_OR_RETURN(const std::vector<float> decode, golden.Floats("logits_decode", {batch, length - prefill, vocab}));
  const auto compare = [&](const std::string& quantity, const std::vector<float>& expected, int64_t expected_from,
                           const std::string& name, const BatchRun& got, int64_t from) {
    GoldenLine* const line = context.NewLine(quantity, context.options.logits_tolerance);
    const int64_t expected_length = length - expected_from;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t t = from; t < length; ++t) {
        AddErrors({expected.data() + (b * expected_length + t - expected_from) * vocab, static_cast<size_t>(vocab)},
                  {got.runs[b].logits.data() + t * vocab, static_cast<size_t>(vocab)}, {vocab}, 1,
                  absl::StrCat(name, " sequence ", b, ", position ", t, ", token "), line);
      }
    }
  };
  compare("logits, whole sequence", full, 0, "logits_full", whole, 0);
  compare("logits, prefill and single steps", decode, prefill, "logits_decode", decoded, prefill);
  compare("logits, single steps and whole sequence", full, 0, "logits_full", decoded, prefill);
  return absl::OkStatus();
}

absl::Status CheckHidden(const BatchRun& whole, Context& context) {
  GoldenFile& golden = context.golden;
  const int64_t batch = golden.batch(), length = golden.length(), width = context.model.spec().width();
  for (int layer = 0; layer < context.model.spec().layers_size(); ++layer) {
    const std::string name = absl::StrCat("hidden_after_layer_", layer);
    ASSIGN_OR_RETURN(const std::vector<float> expected, golden.Floats(name, {batch, length, width}));
    GoldenLine* const line = context.NewLine(name, context.options.hidden_tolerance);
    for (int64_t b = 0; b < batch; ++b) {
      AddErrors({expected.data() + b * length * width, static_cast<size_t>(length * width)},
                whole.runs[b].hidden[layer], {length, width}, 1, absl::StrCat("sequence ", b, " "), line);
    }
  }
  return absl::OkStatus();
}

// How a batch was fed must change no bit of it.
void CheckSameBits(const std::string& how, const BatchRun& whole, const BatchRun& other, Context& context) {
  GoldenLine* const line = context.NewLine(absl::StrCat("values with other bits, ", how), 0);
  double total = 0;
  std::string where;
  for (size_t b = 0; b < whole.runs.size(); ++b) {
    const int64_t outputs = CountDifferentBits(whole.runs[b], other.runs[b]);
    const int64_t state = CountDifferentBits(whole.states[b], other.states[b]);
    total += static_cast<double>(outputs + state);
    if (outputs + state > 0 && where.empty()) {
      where = absl::StrCat("sequence ", b, ": ", outputs, " outputs, ", state, " bytes of state");
    }
  }
  AddError(total, where, line);
}

// Rows of a tensor [B, Hk, M, d] that deviate anywhere by more than the tolerance: tokens that took another route.
int64_t CountRowsApart(absl::Span<const float> expected, absl::Span<const float> got, int64_t dim, double tolerance) {
  int64_t apart = 0;
  for (size_t row = 0; row < expected.size(); row += dim) {
    bool same = true;
    for (size_t i = row; i < row + dim; ++i) same = same && std::abs(got[i] - expected[i]) <= tolerance;
    apart += !same;
  }
  return apart;
}

// Compares "cache.I.NAME" with the same tensor of all sequences, in the line for NAME.
void CompareState(const std::string& name, const TensorView& expected, absl::Span<const Tensor* const> got,
                  Context& context, GoldenLine* line, GoldenLine* rows_line) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (expected.dtype == DType::kI64) {
    const std::vector<int64_t> want = ReadInts(expected);
    for (const Tensor* tensor : got) {
      if (tensor->dtype() != DType::kI64 || tensor->shape() != expected.shape) {
        AddError(kInfinity, absl::StrCat(name, " has shape ", ToString(tensor->shape())), line);
        continue;
      }
      for (size_t i = 0; i < want.size(); ++i) {
        const int64_t value = tensor->ints()[i];
        AddError(std::abs(static_cast<double>(value - want[i])),
                 absl::StrCat(name, ": ", value, ", expected ", want[i]), line);
      }
    }
    return;
  }

  Shape shape = got[0]->shape();
  shape.insert(shape.begin(), static_cast<int64_t>(got.size()));
  if (expected.dtype != DType::kF32 || expected.shape != shape) {
    AddError(kInfinity, absl::StrCat(name, " has shape ", ToString(shape), ", expected ", ToString(expected.shape)),
             line);
    return;
  }
  const std::vector<float> want = ReadFloats(expected);
  std::vector<float> have;
  for (const Tensor* tensor : got) have.insert(have.end(), tensor->floats().begin(), tensor->floats().end());
  have.resize(want.size(), std::numeric_limits<float>::quiet_NaN());
  const double scale = LargestEntry(want);
  AddErrors(want, have, shape, scale, name, line);
  if (rows_line == nullptr) return;
  const int64_t apart = CountRowsApart(want, have, shape.back(), context.options.state_tolerance * scale);
  rows_line->error += static_cast<double>(apart);
  if (apart > 0 && rows_line->worst.empty()) rows_line->worst = absl::StrCat(name, ": ", apart, " rows");
}

absl::Status CheckState(const BatchRun& decoded, Context& context) {
  std::vector<std::map<std::string, const Tensor*>> states;
  for (const std::vector<NamedTensor>& state : decoded.states) {
    states.emplace_back();
    for (const NamedTensor& t : state) states.back()[t.name] = &t.tensor;
  }
  std::map<std::string, GoldenLine> lines;  // by NAME
  for (const std::string& name : context.golden.Names()) {
    if (!absl::StartsWith(name, "cache.") || states[0].count(name) == 0) continue;
    std::vector<const Tensor*> tensors;
    for (const auto& state : states) tensors.push_back(state.at(name));
    const std::string kind = name.substr(name.find('.', 6) + 1);
    const auto line_of = [&](const std::string& quantity, double tolerance) {
      return &lines.insert({quantity, {quantity, 0, tolerance, ""}}).first->second;
    };
    const TensorView& expected = context.golden.Use(name);
    const bool exact = expected.dtype == DType::kI64;
    GoldenLine* const line = line_of(absl::StrCat("state ", kind), exact ? 0 : context.options.state_tolerance);
    GoldenLine* const rows_line = kind == "kvm_s_k" || kind == "kvm_s_v" || kind == "kvm_s_vlen"
                                      ? line_of(absl::StrCat("state ", kind, ": rows apart"), 0)
                                      : nullptr;
    CompareState(name, expected, tensors, context, line, rows_line);
  }
  for (const auto& [quantity, line] : lines) context.report.lines.push_back(line);
  return absl::OkStatus();
}

// −log softmax(logits)[label].
double CrossEntropy(absl::Span<const float> logits, int64_t label) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - largest);
  return std::log(sum) + largest - logits[label];
}

absl::Status CheckLoss(const BatchRun& whole, Context& context) {
  GoldenFile& golden = context.golden;
  if (!golden.Has("loss") && !golden.Has("labels")) return absl::OkStatus();
  const int64_t vocab = context.model.vocab_size();
  ASSIGN_OR_RETURN(const std::vector<int64_t> labels, golden.Ints("labels", {golden.batch(), golden.length()}));
  ASSIGN_OR_RETURN(const std::vector<float> loss, golden.Floats("loss", {}));
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(labels.size()); ++i) {
    if (labels[i] == -100) continue;
    if (labels[i] < 0 || labels[i] >= vocab) {
      return absl::InvalidArgumentError(absl::StrCat("labels: got ", labels[i], ", expected -100 or a token id"));
    }
    const std::vector<float>& logits = whole.runs[i / golden.length()].logits;
    sum += CrossEntropy({logits.data() + i % golden.length() * vocab, static_cast<size_t>(vocab)}, labels[i]);
    ++count;
  }
  GoldenLine* const line = context.NewLine("loss", context.options.loss_tolerance);
  AddError(std::abs(sum / static_cast<double>(count) - loss[0]), absl::StrCat("expected ", loss[0]), line);
  return absl::OkStatus();
}

// Rotary frequencies must agree to the bit: over long contexts the last bit is seen.
absl::Status CheckFrequencies(const std::string& name, const std::string& mixer_name, Context& context) {
  if (!context.golden.Has(name)) return absl::OkStatus();
  const TensorView& tensor = context.golden.Use(name);
  const StackSpec& spec = context.model.spec();
  const auto mixer = std::find_if(spec.mixers().begin(), spec.mixers().end(),
                                  [&](const MixerSpec& m) { return m.name() == mixer_name; });
  // Perhaps no layer here turns anything.
  if (mixer == spec.mixers().end() || !HasProjections(*mixer) || mixer->has_ovq()) return absl::OkStatus();
  const ProjectionSpec& projections = Projections(*mixer);
  std::vector<float> expected(ResolveHeads(projections, spec.width()).qk_dim, 0);
  const std::vector<float> frequencies = RotaryFrequencies(projections.rotary_dim(), projections.rotary_theta());
  for (size_t p = 0; p < frequencies.size(); ++p) expected[2 * p] = expected[2 * p + 1] = frequencies[p];
  ASSIGN_OR_RETURN(const std::vector<float> golden,
                   context.golden.Floats(name, {static_cast<int64_t>(expected.size())}));
  AddErrors(golden, expected, tensor.shape, 1, name, context.NewLine(name, 0));
  return absl::OkStatus();
}

absl::Status CheckAll(Context& context) {
  const int64_t length = context.golden.length(), prefill = context.golden.prefill_len();
  ASSIGN_OR_RETURN(const BatchRun whole, Run(context, {}, true));
  ASSIGN_OR_RETURN(const BatchRun decoded, Run(context, {prefill, 1}, true));
  RETURN_IF_ERROR(CheckLogits(whole, decoded, context));
  RETURN_IF_ERROR(CheckHidden(whole, context));
  RETURN_IF_ERROR(CheckState(whole, context));
  RETURN_IF_ERROR(CheckLoss(whole, context));
  RETURN_IF_ERROR(CheckFrequencies("debug.angular_freq", "main", context));
  RETURN_IF_ERROR(CheckFrequencies("debug.alt_angular_freq", "alt", context));

  CheckSameBits("prefill and single steps", whole, decoded, context);
  ASSIGN_OR_RETURN(const BatchRun separate, Run(context, {}, false));
  CheckSameBits("sequences one by one", whole, separate, context);
  const std::vector<std::vector<int64_t>> cuts = {{1}, {7, 1, 3}, {13}, {length - 1, 1}};
  for (const std::vector<int64_t>& pieces : cuts) {
    ASSIGN_OR_RETURN(const BatchRun cut, Run(context, pieces, true));
    CheckSameBits(absl::StrCat("pieces of ", absl::StrJoin(pieces, ", "), ", ..."), whole, cut, context);
  }
  return context.golden.CheckAllUsed();
}

}  // namespace

absl::StatusOr<GoldenReport> CheckGolden(const std::string& folder, const GoldenOptions& options) {
  if (IsLayerFolder(folder)) return CheckGoldenLayer(folder, options);
  ASSIGN_OR_RETURN(GoldenFile golden, GoldenFile::Open(folder + "/golden.safetensors"));
  ASSIGN_OR_RETURN(const ModelFolder model_folder, OpenModelFolder(folder));
  ASSIGN_OR_RETURN(const std::unique_ptr<LanguageModel> model,
                   LanguageModel::Create(model_folder.spec, *model_folder.weights, options.model));
  Context context = {std::move(golden), *model, options, ExecutionContext(options.num_threads), {folder, {}}};
  RETURN_IF_ERROR(CheckAll(context));
  return std::move(context.report);
}

}  // namespace kvm
