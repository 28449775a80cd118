#include "tools/demo/demo_command.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/stack_file.h"
#include "kvm/io/tokenizer/byte_level_bpe.h"
#include "kvm/io/tokenizer/tokenizer.h"
#include "kvm/model/engine/state_size.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack/stack_spec.h"
#include "nlohmann/json.hpp"
#include "tools/cli/command_status.h"
#include "tools/cli/flag_set.h"
#include "tools/cli/format.h"
#include "tools/cli/output_paths.h"
#include "tools/cli/progress.h"
#include "tools/demo/demo_data.h"
#include "tools/flags/model_flags.h"
#include "tools/flags/state_fits.h"
#include "tools/report/demo_picture.h"
#include "tools/report/stack_report.h"

namespace kvm {
namespace {

constexpr uint64_t kSeed = 1;
constexpr int64_t kMinTokens = 512;
// Tokens of one call to Extend.
constexpr int64_t kPiece = 512;
// Tokens decoded at each checkpoint; odd, so that one is in the middle.
constexpr int64_t kDecodeTokens = 9;

constexpr char kRowFormat[] = "%8s  %6s  %10s  %10s  %6s  %12s  %12s\n";

struct DemoFlags {
  ModelFlags model;  // all but --model and --seed
  int64_t tokens = 16384;
  std::string spec;
  std::string out = "kvm_demo.svg";
  bool force = false;
  bool json = false;
};

double SecondsSince(absl::Time start) { return absl::ToDoubleSeconds(absl::Now() - start); }

// Takes the tokens in, piece by piece.
absl::Status Prefill(const LanguageModel& model, absl::Span<const int32_t> tokens, SequenceState& sequence,
                     ExecutionContext& context, Console& console) {
  Progress progress(console, absl::StrCat("reading on from ", FormatCount(sequence.position())), "tokens",
                    static_cast<int64_t>(tokens.size()));
  for (size_t begin = 0; begin < tokens.size(); begin += kPiece) {
    const absl::Span<const int32_t> piece = tokens.subspan(begin, kPiece);
    RETURN_IF_ERROR(model.Extend({{&sequence, piece, MatrixView<float>()}}, context));
    progress.Update(static_cast<int64_t>(begin + piece.size()));
    if (console.interrupted()) return Interrupted();
  }
  return absl::OkStatus();
}

// Continues a copy of the sequence by a few tokens; returns the seconds that one takes, as a median.
absl::StatusOr<double> TimeDecoding(const LanguageModel& model, const SequenceState& sequence, int32_t token,
                                    ExecutionContext& context) {
  SequenceState fork = sequence.Fork();
  std::vector<float> logits(model.vocab_size());
  const MatrixView<float> row(logits.data(), 1, model.vocab_size());
  std::vector<double> seconds;
  for (int64_t i = 0; i < kDecodeTokens; ++i) {
    const absl::Time start = absl::Now();
    RETURN_IF_ERROR(model.Extend({{&fork, {&token, 1}, row}}, context));
    token = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    seconds.push_back(SecondsSince(start));
  }
  std::nth_element(seconds.begin(), seconds.begin() + kDecodeTokens / 2, seconds.end());
  return seconds[kDecodeTokens / 2];
}

void PrintRow(const DemoPoint& point, std::ostream& out) {
  out << absl::StrFormat(kRowFormat, FormatContext(point.context), FormatCount(point.rows),
                         FormatBytes(point.state_bytes), FormatBytes(point.full_cache_bytes),
                         absl::StrFormat("%.0f%%", 100.0 * static_cast<double>(point.state_bytes) /
                                                       static_cast<double>(point.full_cache_bytes)),
                         absl::StrCat(FormatRate(point.prefill_tokens_per_second), " tok/s"),
                         absl::StrFormat("%.1f ms/tok", 1000 * point.decode_seconds_per_token))
      << std::flush;
}

// Reads the text up to each checkpoint and measures there.
absl::StatusOr<std::vector<DemoPoint>> Measure(const LanguageModel& model, absl::Span<const int32_t> tokens,
                                               DType state_dtype, bool print, ExecutionContext& context,
                                               Console& console) {
  std::vector<DemoPoint> points;
  SequenceState sequence = model.NewSequence();
  const int64_t end = static_cast<int64_t>(tokens.size());
  for (int64_t next = kMinTokens;; next = std::min(2 * next, end)) {
    const int64_t begin = sequence.position();
    const absl::Time start = absl::Now();
    RETURN_IF_ERROR(Prefill(model, tokens.subspan(begin, next - begin), sequence, context, console));
    DemoPoint point;
    point.context = next;
    point.prefill_tokens_per_second = static_cast<double>(next - begin) / SecondsSince(start);
    point.rows = sequence.NumRows();
    point.state_bytes = sequence.ByteSize();
    point.full_cache_bytes = FullCacheByteSize(model.spec(), state_dtype, next);
    ASSIGN_OR_RETURN(point.decode_seconds_per_token, TimeDecoding(model, sequence, tokens[next - 1], context));
    points.push_back(point);
    if (print) PrintRow(point, console.out);
    if (next == end) return points;
  }
}

void PrintIntroduction(const LanguageModel& model, const DemoFlags& values, Console& console) {
  console.out << DescribeStack(model.spec()) << "  weights in memory: " << FormatBytes(model.WeightByteSize())
              << ", random (seed " << kSeed << "); " << values.model.threads
              << (values.model.threads == 1 ? " thread" : " threads")
              << "\n\nstate: all that the model keeps of the text. full cache: what it would take to keep the keys and "
                 "values of\nall layers. decode: one token at a time, on a fork of the state.\n\n"
              << absl::StrFormat(kRowFormat, "context", "rows", "state", "full cache", "share", "prefill", "decode")
              << std::flush;
}

void PrintConclusion(const std::vector<DemoPoint>& points, const DemoFlags& values, double seconds, Console& console) {
  const DemoPoint& first = points.front();
  const DemoPoint& last = points.back();
  console.out
      << absl::StrFormat("\nFrom %s to %s tokens the text grew %.1f times and the state %.1f times.\n",
                         FormatContext(first.context), FormatContext(last.context),
                         static_cast<double>(last.context) / static_cast<double>(first.context),
                         static_cast<double>(last.state_bytes) / static_cast<double>(first.state_bytes))
      << "Memory and speed are real: they do not depend on what the weights are. But the weights are random, so\n"
      << "that text written by this model would be noise.\n"
      << "Took " << FormatSeconds(seconds) << ". Picture: " << values.out << "\n";
}

nlohmann::json ToJson(const std::vector<DemoPoint>& points) {
  nlohmann::json json = nlohmann::json::array();
  for (const DemoPoint& point : points) {
    json.push_back({{"context", point.context},
                    {"rows", point.rows},
                    {"state_bytes", point.state_bytes},
                    {"full_cache_bytes", point.full_cache_bytes},
                    {"prefill_tokens_per_second", point.prefill_tokens_per_second},
                    {"decode_seconds_per_token", point.decode_seconds_per_token}});
  }
  return json;
}

absl::StatusOr<std::vector<int32_t>> DemoTokens(const FlagSet& flags, const Tokenizer& tokenizer, int64_t wanted) {
  ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer.Encode(DemoText()));
  if (wanted > static_cast<int64_t>(tokens.size())) {
    return flags.Wrong(absl::StrCat("--tokens=", wanted, ": the demo's text has ", tokens.size(), " tokens"));
  }
  tokens.resize(wanted);
  return tokens;
}

absl::StatusOr<StackSpec> LoadStack(const DemoFlags& values, int32_t vocab_size) {
  if (values.spec.empty()) return ParseStackSpec(DemoStack(), "the demo's stack");
  ASSIGN_OR_RETURN(const StackSpec spec, ReadStackFile(values.spec));
  if (spec.vocab_size() < vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat(values.spec, ": vocab_size is ", spec.vocab_size(),
                                                   "; expected at least ", vocab_size, ", the demo's tokenizer"));
  }
  return spec;
}

absl::Status RunDemo(absl::Span<const std::string> args, Console& console) {
  FlagSet flags("demo", "[--tokens=N] [--out=FILE.svg]",
                "The tour, within a minute: a KVM + RWKV-7 hybrid with random weights reads real text, and its state\n"
                "is shown beside a full key/value cache. Needs no files; writes one picture.");
  DemoFlags values;
  flags.Int64("tokens", &values.tokens, kMinTokens, 1 << 20, "tokens to read");
  flags.String("spec", &values.spec, "FILE", "another stack, as .textproto");
  flags.String("out", &values.out, "FILE", "the picture (SVG)");
  DefineForceFlag(flags, &values.force);
  flags.Bool("json", &values.json, "print the table as JSON");
  DefineRuntimeFlags(flags, &values.model);
  RETURN_IF_ERROR(flags.Parse(args));
  ASSIGN_OR_RETURN(const ModelOptions options, ResolveModelOptions(flags, values.model));
  if (!values.spec.empty() && IsSameFile(values.out, values.spec)) {
    return flags.Wrong("--out and --spec are the same file; expected different ones");
  }
  // Found out now rather than after a minute.
  RETURN_IF_ERROR(CheckOutput(values.out, OutputKind::kPicture, values.force));

  const absl::Time start = absl::Now();
  // Until the picture is written.
  std::optional<AbandonableStep> showing(std::in_place, console);
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                   ParseByteLevelBpe(Gpt2Tokenizer(), "the demo's tokenizer"));
  ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, DemoTokens(flags, *tokenizer, values.tokens));
  ASSIGN_OR_RETURN(const StackSpec spec, LoadStack(values, tokenizer->vocab_size()));
  if (!values.json) {
    console.out << (values.spec.empty() ? "A hybrid of RWKV-7 and Key-Value Means" : values.spec) << " reads "
                << FormatCount(values.tokens) << " tokens of the King James Bible.\n\n"
                << std::flush;
  }
  ExecutionContext context(static_cast<int>(values.model.threads));
  NoteThreads(flags, values.model.threads, context.pool, console);
  values.model.threads = context.pool.num_threads();
  constexpr int64_t kSequences = 2;  // decoding is timed on a fork
  RETURN_IF_ERROR(CheckStateFits(spec, options.state, kSequences, values.tokens));
  ASSIGN_OR_RETURN(std::unique_ptr<WeightSource> weights, DrawRandomWeights(spec, kSeed, context.pool, console));
  ASSIGN_OR_RETURN(const std::unique_ptr<LanguageModel> model, LanguageModel::Create(spec, *weights, options));
  weights.reset();

  if (!values.json) PrintIntroduction(*model, values, console);
  ASSIGN_OR_RETURN(const std::vector<DemoPoint> points,
                   Measure(*model, tokens, options.state, !values.json, context, console));
  showing.reset();
  RETURN_IF_ERROR(WriteFileAtomically(values.out, DrawDemoPicture(spec, options.state, points)));
  if (values.json) {
    console.out << ToJson(points).dump(2) << "\n";
  } else {
    PrintConclusion(points, values, SecondsSince(start), console);
  }
  return absl::OkStatus();
}

}  // namespace

Command DemoCommand() { return {"demo", "a tour: streams text through a KVM + RWKV-7 hybrid", RunDemo}; }

}  // namespace kvm
