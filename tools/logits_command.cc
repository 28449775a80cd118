#include "tools/logits_command.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/model/language_model.h"
#include "tools/cli/command_status.h"
#include "tools/cli/flag_set.h"
#include "tools/cli/format.h"
#include "tools/cli/machine.h"
#include "tools/cli/note.h"
#include "tools/cli/output_paths.h"
#include "tools/cli/progress.h"
#include "tools/flags/model_flags.h"
#include "tools/flags/state_fits.h"
#include "tools/report/stacked_state.h"

namespace kvm {
namespace {

// Tokens of a sequence that one call to Extend gets at most, however large the pieces: the time between two looks at
// Ctrl-C. It changes no bit of the results, unless these are of chunked recurrences.
constexpr int64_t kMaxPiece = 512;

constexpr char kInputName[] = "input_ids";
constexpr char kMaskName[] = "attention_mask";
// What models of other libraries take besides.
constexpr const char* kUnusedInputs[] = {"position_ids", "token_type_ids", "inputs_embeds", "cache_position"};

struct TokenBatch {
  int64_t num_sequences = 0;
  int64_t length = 0;
  std::vector<int32_t> ids;  // [num_sequences, length]

  absl::Span<const int32_t> Piece(int64_t sequence, int64_t begin, int64_t size) const {
    return absl::MakeConstSpan(ids).subspan(sequence * length + begin, size);
  }
};

bool IsOne(const TensorView& tensor, int64_t i) {
  const char* const data = static_cast<const char*>(tensor.data);
  switch (tensor.dtype) {
    case DType::kI64: {
      int64_t value;
      std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(value)), sizeof(value));
      return value == 1;
    }
    case DType::kI32: {
      int32_t value;
      std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(value)), sizeof(value));
      return value == 1;
    }
    default:
      return data[i] == 1;
  }
}

// A mask that hides nothing is fine. Others ask for what is not done: every token is taken in by a state, which cannot
// forget it.
absl::Status CheckMask(const std::string& path, const TensorView& mask, const TokenBatch& batch) {
  if (mask.dtype != DType::kI64 && mask.dtype != DType::kI32 && mask.dtype != DType::kU8 &&
      mask.dtype != DType::kBool) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", kMaskName, " is ", Name(mask.dtype), "; expected I64, I32, U8 or BOOL"));
  }
  if (mask.shape != Shape{batch.num_sequences, batch.length}) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", kMaskName, " has shape ", ToString(mask.shape),
                                                   "; expected that of ", kInputName, ", [", batch.num_sequences, ", ",
                                                   batch.length, "]"));
  }
  for (int64_t i = 0; i < batch.num_sequences * batch.length; ++i) {
    if (IsOne(mask, i)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", kMaskName, "[", i / batch.length, ", ", i % batch.length, "] is not 1; expected ones alone, as ",
        "tokens cannot be masked: give sequences of one length without padding, each length in a file of its own"));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenBatch> ReadTokens(const std::string& path, int64_t vocab_size, Console& console) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(path));
  const TensorView* tensor = file->Find(kInputName);
  if (tensor == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": no tensor ", kInputName, "; expected I64 of shape [B, T]"));
  }
  const Shape& shape = tensor->shape;
  if (tensor->dtype != DType::kI64 || shape.size() != 2 || shape[0] < 1 || shape[1] < 1) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", kInputName, " is ", Name(tensor->dtype), " of shape ",
                                                   ToString(shape), "; expected I64 of shape [B, T], both at least 1"));
  }
  TokenBatch batch{shape[0], shape[1], std::vector<int32_t>(tensor->num_elements())};
  for (size_t i = 0; i < batch.ids.size(); ++i) {
    int64_t id;
    std::memcpy(&id, static_cast<const char*>(tensor->data) + i * sizeof(id), sizeof(id));
    if (id < 0 || id >= vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", kInputName, "[", i / batch.length, ", ",
                                                     i % batch.length, "] is ", id, "; expected 0 to ", vocab_size - 1,
                                                     ", the model's vocabulary"));
    }
    batch.ids[i] = static_cast<int32_t>(id);
  }
  const TensorView* mask = file->Find(kMaskName);
  if (mask != nullptr) RETURN_IF_ERROR(CheckMask(path, *mask, batch));
  for (const char* name : kUnusedInputs) {
    if (file->Find(name) == nullptr) continue;
    PrintNote(console, absl::StrCat(path, ": ", name, " changes nothing; only ", kInputName, " is read"));
  }
  return batch;
}

// What becomes the output file.
struct Results {
  Tensor logits;               // [B, T, V]
  std::vector<Tensor> hidden;  // one a layer, [B, T, D]; none unless wanted
};

absl::StatusOr<Results> AllocateResults(const TokenBatch& batch, const LanguageModel& model, bool want_hidden) {
  const int64_t layers = want_hidden ? model.spec().layers_size() : 0;
  const int64_t width = model.spec().width();
  const double bytes = sizeof(float) * static_cast<double>(batch.num_sequences) * static_cast<double>(batch.length) *
                       static_cast<double>(model.vocab_size() + layers * width);
  RETURN_IF_ERROR(
      CheckFitsInMemory(absl::StrCat("the results for ", batch.num_sequences, " x ", batch.length, " tokens"), bytes,
                        "give fewer tokens"));
  Results results;
  results.logits = Tensor(DType::kF32, {batch.num_sequences, batch.length, model.vocab_size()});
  for (int64_t i = 0; i < layers; ++i) {
    results.hidden.emplace_back(DType::kF32, Shape{batch.num_sequences, batch.length, width});
  }
  return results;
}

// Feeds all sequences side by side in the given pieces, the last of which repeats.
absl::Status Compute(const LanguageModel& model, const TokenBatch& batch, const std::vector<int64_t>& pieces,
                     ExecutionContext& context, Console& console, std::vector<SequenceState>* sequences,
                     Results* results) {
  const AbandonableStep computing(console);
  const int64_t vocab = model.vocab_size();
  const int64_t width = model.spec().width();
  Progress progress(console, "logits", "tokens", batch.num_sequences * batch.length);
  size_t next_piece = 0;
  int64_t piece_left = pieces[0];
  for (int64_t begin = 0; begin < batch.length;) {
    const int64_t size = std::min({piece_left, batch.length - begin, kMaxPiece});
    std::vector<SequenceInput> inputs;
    for (int64_t b = 0; b < batch.num_sequences; ++b) {
      float* logits = results->logits.floats().data() + (b * batch.length + begin) * vocab;
      inputs.push_back({&(*sequences)[b], batch.Piece(b, begin, size), MatrixView<float>(logits, size, vocab)});
    }
    const auto keep_hidden = [&](int64_t layer, int64_t b, int64_t first_token, MatrixView<const float> x) {
      if (results->hidden.empty()) return;
      float* out = results->hidden[layer].floats().data() + (b * batch.length + begin + first_token) * width;
      for (int64_t r = 0; r < x.rows; ++r) std::copy_n(x.row(r), width, out + r * width);
    };
    RETURN_IF_ERROR(model.Extend(inputs, context, keep_hidden));
    begin += size;
    piece_left -= size;
    if (piece_left == 0) {
      next_piece = std::min(next_piece + 1, pieces.size() - 1);
      piece_left = pieces[next_piece];
    }
    progress.Update(begin * batch.num_sequences);
    if (console.interrupted()) return Interrupted();
  }
  return absl::OkStatus();
}

// Numbers that are no answer are written as they are, since somebody may look for where they begin; but not in silence.
void NoteNotFinite(const Results& results, const TokenBatch& batch, int64_t vocab, Console& console) {
  const absl::Span<const float> logits = results.logits.floats();
  const auto first = std::find_if(logits.begin(), logits.end(), [](float x) { return !std::isfinite(x); });
  if (first == logits.end()) return;
  const int64_t row = (first - logits.begin()) / vocab;
  const auto count = std::count_if(first, logits.end(), [](float x) { return !std::isfinite(x); });
  PrintNote(console,
            absl::StrCat(FormatCount(count), " of ", FormatCounted(static_cast<int64_t>(logits.size()), "logit"),
                         " are NaN or infinite, the first of them of sequence ", row / batch.length, " at position ",
                         row % batch.length, "; the model's weights may be broken"));
}

absl::Status Write(const Results& results, const std::string& path) {
  std::vector<NamedTensorView> views = {{"logits", results.logits.view()}};
  for (size_t i = 0; i < results.hidden.size(); ++i) {
    views.push_back({absl::StrCat("hidden_after_layer_", i), results.hidden[i].view()});
  }
  return WriteSafetensors(path, std::move(views));
}

// That no output is another one or an input, and that they can be written: found out before the work.
absl::Status CheckOutputs(const FlagSet& flags, const std::string& model, const std::string& ids,
                          const std::string& out, const std::string& state_out, bool force) {
  const auto clash = [&flags](absl::string_view a, absl::string_view b) {
    return flags.Wrong(absl::StrCat(a, " and ", b, " are the same file; expected different ones"));
  };
  if (IsSameFile(out, ids)) return clash("--out", "--ids");
  if (!state_out.empty() && IsSameFile(state_out, ids)) return clash("--state-out", "--ids");
  if (!state_out.empty() && IsSameFile(state_out, out)) return clash("--state-out", "--out");
  RETURN_IF_ERROR(CheckNotOfModel(flags, "out", out, model));
  RETURN_IF_ERROR(CheckNotOfModel(flags, "state-out", state_out, model));
  RETURN_IF_ERROR(CheckOutput(out, OutputKind::kLogits, force));
  return state_out.empty() ? absl::OkStatus() : CheckOutput(state_out, OutputKind::kState, force);
}

absl::Status RunLogits(absl::Span<const std::string> args, Console& console) {
  FlagSet flags(
      "logits", "--model=DIR --ids=IN.safetensors --out=OUT.safetensors",
      "Reads I64 input_ids [B, T] and writes F32 logits [B, T, V]. How the ids are cut into pieces changes no\n"
      "bit of the results (but see --chunked-recurrences).");
  ModelFlags model_flags;
  std::string ids, out, state_out;
  std::vector<int64_t> pieces;
  bool hidden = false, force = false;
  DefineModelFlags(flags, &model_flags);
  flags.String("ids", &ids, "FILE", "safetensors file with input_ids");
  flags.String("out", &out, "FILE", "safetensors file to write");
  flags.Int64s("pieces", &pieces, 1, std::numeric_limits<int64_t>::max(),
               "feed the ids in these pieces; the last size repeats: 20,1 is a prefill of 20 and single steps");
  flags.Bool("hidden", &hidden, "also write hidden_after_layer_I [B, T, D]");
  flags.String("state-out", &state_out, "FILE", "safetensors file for the final state: cache.I.NAME, stacked over B");
  DefineForceFlag(flags, &force);
  RETURN_IF_ERROR(flags.Parse(args));
  if (ids.empty()) return flags.Wrong("--ids is missing: a safetensors file with input_ids");
  if (out.empty()) return flags.Wrong("--out is missing: the safetensors file to write");
  if (pieces.empty()) pieces = {std::numeric_limits<int64_t>::max()};

  RETURN_IF_ERROR(CheckOutputs(flags, model_flags.model, ids, out, state_out, force));

  ExecutionContext context(static_cast<int>(model_flags.threads));
  ASSIGN_OR_RETURN(const LoadedModel loaded, LoadModel(flags, model_flags, context, console));
  const LanguageModel& model = *loaded.model;
  ASSIGN_OR_RETURN(const TokenBatch batch, ReadTokens(ids, model.vocab_size(), console));
  RETURN_IF_ERROR(CheckStateFits(model.spec(), loaded.options.state, batch.num_sequences, batch.length));
  ASSIGN_OR_RETURN(Results results, AllocateResults(batch, model, hidden));
  std::vector<SequenceState> sequences;
  for (int64_t b = 0; b < batch.num_sequences; ++b) sequences.push_back(model.NewSequence());
  RETURN_IF_ERROR(Compute(model, batch, pieces, context, console, &sequences, &results));
  NoteNotFinite(results, batch, model.vocab_size(), console);
  RETURN_IF_ERROR(Write(results, out));
  if (!state_out.empty()) RETURN_IF_ERROR(WriteStackedState(sequences, state_out));
  return absl::OkStatus();
}

}  // namespace

Command LogitsCommand() { return {"logits", "computes the logits of token ids", RunLogits}; }

}  // namespace kvm
