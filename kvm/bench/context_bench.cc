#include "kvm/bench/context_bench.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/bench/resident_memory.h"
#include "kvm/bench/token_cost.h"

namespace kvm {
namespace {

// A model on its way through the contexts.
struct Reader {
  const BenchModel* subject = nullptr;
  std::vector<int32_t> tokens;  // of the whole way, and of decoding behind it
  SequenceState sequence;
  double seconds = 0;
  std::vector<float> logits;
  ModelResult result;
};

// All seconds of one number of threads at one context.
struct Samples {
  std::vector<double> piece, first_token, token;
};

std::vector<int32_t> DrawTokens(int64_t count, int64_t vocab_size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab_size));
  return tokens;
}

// Extends by the tokens at the sequence's own position, and returns the seconds.
absl::StatusOr<double> Extend(Reader& reader, SequenceState& sequence, int64_t count, bool wants_logits,
                              ExecutionContext& context) {
  const absl::Span<const int32_t> tokens =
      absl::MakeConstSpan(reader.tokens).subspan(static_cast<size_t>(sequence.position()), static_cast<size_t>(count));
  MatrixView<float> logits;
  if (wants_logits) logits = {reader.logits.data(), 1, static_cast<int64_t>(reader.logits.size())};
  const double start = Now();
  RETURN_IF_ERROR(reader.subject->model->Extend({{&sequence, tokens, logits}}, context));
  return Now() - start;
}

// Reads on to `end` and notes the time of every piece.
absl::Status ReadTo(int64_t end, const ContextBenchOptions& options, ExecutionContext& context, const BenchHooks& hooks,
                    Reader& reader) {
  const int64_t begin = reader.sequence.position();
  const std::string what = absl::StrCat(reader.subject->name, ": reading on from ", begin);
  while (reader.sequence.position() < end) {
    if (hooks.cancelled()) return BenchCancelled();
    const int64_t count = std::min(options.piece_tokens, end - reader.sequence.position());
    ASSIGN_OR_RETURN(const double seconds, Extend(reader, reader.sequence, count, false, context));
    reader.seconds += seconds;
    const double position = static_cast<double>(reader.sequence.position());
    if (count == options.piece_tokens) reader.result.piece_seconds.push_back({position, seconds});
    reader.result.total_seconds.push_back({position, reader.seconds});
    hooks.progress(what, "tokens", reader.sequence.position() - begin, end - begin);
  }
  return absl::OkStatus();
}

// A fork takes a piece of tokens and then single ones.
absl::Status TakeSamples(int64_t piece, int64_t decode_tokens, ExecutionContext& context, Reader& reader,
                         Samples* samples) {
  SequenceState fork = reader.sequence.Fork();
  // What the two share would be copied when it is written to: a sequence by itself copies nothing.
  fork.Unshare();
  ASSIGN_OR_RETURN(double seconds, Extend(reader, fork, piece, false, context));
  samples->piece.push_back(seconds);
  ASSIGN_OR_RETURN(seconds, Extend(reader, fork, 1, true, context));
  samples->first_token.push_back(seconds);
  for (int64_t i = 0; i < decode_tokens; ++i) {
    ASSIGN_OR_RETURN(seconds, Extend(reader, fork, 1, true, context));
    samples->token.push_back(seconds);
  }
  return absl::OkStatus();
}

ContextResult Describe(const Reader& reader, int64_t context, int64_t piece) {
  const LanguageModel& model = *reader.subject->model;
  const MixerCost mixers = CostOfMixers(model.spec(), reader.subject->state, context);
  ContextResult result;
  result.context = context;
  result.piece_tokens = piece;
  result.read_seconds = reader.seconds;
  result.rows = reader.sequence.NumRows();
  result.state_bytes = reader.sequence.ByteSize();
  result.piece_flop = PrefillFlop(model.spec(), context - piece, piece);
  result.token_flop = LayerWeightFlop(model.spec()) + HeadFlop(model.spec()) + mixers.flop;
  result.token_bytes = static_cast<double>(model.StepWeightByteSize()) + mixers.bytes;
  return result;
}

}  // namespace

absl::StatusOr<std::vector<ModelResult>> BenchContexts(absl::Span<const BenchModel> models,
                                                       const ContextBenchOptions& options,
                                                       absl::Span<ExecutionContext* const> threads,
                                                       const BenchHooks& hooks) {
  std::vector<Reader> readers(models.size());
  for (size_t m = 0; m < models.size(); ++m) {
    Reader& reader = readers[m];
    reader.subject = &models[m];
    const int64_t vocab_size = models[m].model->vocab_size();
    reader.tokens = DrawTokens(options.contexts.back() + 1 + options.decode_tokens, vocab_size, options.seed);
    reader.sequence = models[m].model->NewSequence();
    reader.logits.resize(static_cast<size_t>(vocab_size));
    reader.result.name = models[m].name;
  }
  ExecutionContext& most = *threads.back();
  for (const int64_t context : options.contexts) {
    // Never back before what is read already.
    const int64_t piece = std::min({options.piece_tokens, context, context - readers[0].sequence.position()});
    for (Reader& reader : readers) RETURN_IF_ERROR(ReadTo(context - piece, options, most, hooks, reader));
    std::vector<Samples> samples(models.size() * threads.size());
    const std::string what = absl::StrCat("measuring at ", context, " tokens");
    const int64_t total = static_cast<int64_t>(samples.size()) * options.rounds;
    int64_t done = 0;
    for (int round = 0; round < options.rounds; ++round) {
      for (size_t i = 0; i < samples.size(); ++i) {
        if (hooks.cancelled()) return BenchCancelled();
        RETURN_IF_ERROR(TakeSamples(piece, options.decode_tokens, *threads[i % threads.size()],
                                    readers[i / threads.size()], &samples[i]));
        hooks.progress(what, "measurements", ++done, total);
      }
    }
    for (Reader& reader : readers) RETURN_IF_ERROR(ReadTo(context, options, most, hooks, reader));
    const int64_t resident = ResidentMemory();
    for (size_t m = 0; m < readers.size(); ++m) {
      ContextResult result = Describe(readers[m], context, piece);
      result.resident_bytes = resident;
      for (size_t t = 0; t < threads.size(); ++t) {
        const Samples& of = samples[m * threads.size() + t];
        result.times.push_back(
            {threads[t]->pool.num_threads(), SpreadOf(of.piece), SpreadOf(of.first_token), SpreadOf(of.token)});
      }
      readers[m].result.contexts.push_back(std::move(result));
    }
  }
  std::vector<ModelResult> results;
  for (Reader& reader : readers) results.push_back(std::move(reader.result));
  return results;
}

}  // namespace kvm
