#include "testing/conformance/conformance.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "gtest/gtest.h"
#include "kvm/model/engine/state_size.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/stack_spec.h"
#include "testing/conformance/model_runs.h"
#include "testing/conformance/random_weights.h"

namespace kvm {
namespace {

constexpr int64_t C = kTestChunk;

// Everything a sequence left behind.
struct Outcome {
  SequenceRun run;
  std::vector<NamedTensor> state;
};

std::vector<SequenceRun> Run(const LanguageModel& model, absl::Span<const RunInput> inputs, ExecutionContext& context) {
  absl::StatusOr<std::vector<SequenceRun>> runs = RunInPieces(model, inputs, context);
  EXPECT_TRUE(runs.ok()) << runs.status();
  return runs.ok() ? *std::move(runs) : std::vector<SequenceRun>(inputs.size());
}

// A new sequence.
Outcome RunOne(const LanguageModel& model, absl::Span<const int32_t> tokens, const std::vector<int64_t>& pieces,
               ExecutionContext& context) {
  SequenceState sequence = model.NewSequence();
  std::vector<SequenceRun> runs = Run(model, {{&sequence, tokens, pieces}}, context);
  EXPECT_EQ(sequence.position(), static_cast<int64_t>(tokens.size()));
  return {std::move(runs[0]), sequence.Export().value()};
}

void ExpectSameBits(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_EQ(CountDifferentBits(a.run, b.run), 0) << what;
  EXPECT_EQ(CountDifferentBits(a.state, b.state), 0) << what;
}

std::vector<int32_t> Tokens(const ConformanceSubject& subject, int64_t count, uint64_t seed) {
  return TestTokens(subject.stack.spec, count, seed);
}

// The logits of token t.
absl::Span<const float> Row(const SequenceRun& run, int64_t t, int64_t vocab) {
  return absl::MakeConstSpan(run.logits).subspan(t * vocab, vocab);
}

// The first of `length` tokens by whose logits or hidden states two runs can be told apart; `length` if there is none.
int64_t FirstDifference(const SequenceRun& a, const SequenceRun& b, int64_t length) {
  std::vector<std::pair<absl::Span<const float>, absl::Span<const float>>> outputs = {{a.logits, b.logits}};
  for (size_t layer = 0; layer < a.hidden.size(); ++layer) outputs.push_back({a.hidden[layer], b.hidden[layer]});
  for (int64_t t = 0; t < length; ++t) {
    for (const auto& [x, y] : outputs) {
      const size_t width = x.size() / static_cast<size_t>(length);
      if (CountDifferentBits(x.subspan(t * width, width), y.subspan(t * width, width)) > 0) return t;
    }
  }
  return length;
}

// Whether the size of a stack's states is predicted as an upper bound only.
bool SizeIsUpperBound(const ConformanceSubject& subject) {
  const auto& mixers = subject.stack.spec.mixers();
  const MixerKinds& kinds = KindsOf(subject.options);
  return std::any_of(mixers.begin(), mixers.end(), [&](const MixerSpec& m) { return IsUpperBound(m, kinds); });
}

void ExpectSize(int64_t got, int64_t predicted, bool is_upper_bound, const std::string& what) {
  if (is_upper_bound) {
    ASSERT_LE(got, predicted) << what;
  } else {
    ASSERT_EQ(got, predicted) << what;
  }
}

}  // namespace

ConformanceSubject::ConformanceSubject(const TestStack& stack, const ModelOptions& options)
    : stack(stack), options(options) {
  absl::StatusOr<std::unique_ptr<LanguageModel>> created =
      LanguageModel::Create(stack.spec, *RandomWeights(stack.spec, stack.seed, KindsOf(options)), options);
  CHECK(created.ok()) << created.status();
  model = *std::move(created);
}

void ExpectSameBitsInPieces(const ConformanceSubject& subject) {
  ExecutionContext context(2);
  const std::vector<int32_t> tokens = Tokens(subject, subject.stack.num_tokens, 1);
  const Outcome whole = RunOne(*subject.model, tokens, {}, context);
  for (const float logit : whole.run.logits) ASSERT_TRUE(std::isfinite(logit));
  const std::vector<std::vector<int64_t>> cuts = {{1}, {C - 1, C + 1}, {7, 1, 3},
                                                  {C}, {2 * C + 1, 1}, {0, 3 * C + 1, 2}};
  for (const std::vector<int64_t>& pieces : cuts) {
    ExpectSameBits(whole, RunOne(*subject.model, tokens, pieces, context),
                   absl::StrCat("pieces of ", absl::StrJoin(pieces, ", ")));
  }
}

void ExpectSameBitsInRaggedBatches(const ConformanceSubject& subject) {
  ExecutionContext context(2);
  const std::vector<int64_t> lengths = {0, 1, C - 1, C, C + 1, 2 * C, 2 * C + 1, 3 * C + 1};
  const size_t n = lengths.size();
  // Two calls: the first from nothing, the second with the lengths in another order on top of it.
  std::vector<SequenceState> together;
  std::vector<std::vector<int32_t>> tokens;
  for (size_t i = 0; i < n; ++i) {
    together.push_back(subject.model->NewSequence());
    tokens.push_back(Tokens(subject, lengths[i] + lengths[(i * 5 + 3) % n], i + 10));
  }
  std::vector<RunInput> first, second;
  for (size_t i = 0; i < n; ++i) {
    const absl::Span<const int32_t> all = tokens[i];
    first.push_back({&together[i], all.first(lengths[i]), {}});
    second.push_back({&together[i], all.subspan(lengths[i]), {}});
  }
  std::vector<SequenceRun> runs = Run(*subject.model, first, context);
  const std::vector<SequenceRun> more = Run(*subject.model, second, context);
  for (size_t i = 0; i < n; ++i) {
    SequenceRun& run = runs[i];
    run.logits.insert(run.logits.end(), more[i].logits.begin(), more[i].logits.end());
    for (size_t layer = 0; layer < run.hidden.size(); ++layer) {
      run.hidden[layer].insert(run.hidden[layer].end(), more[i].hidden[layer].begin(), more[i].hidden[layer].end());
    }
    ExpectSameBits(RunOne(*subject.model, tokens[i], {}, context), {std::move(run), together[i].Export().value()},
                   absl::StrCat("sequence ", i));
  }
}

void ExpectSameBitsWithThreads(const ConformanceSubject& subject) {
  const std::vector<int32_t> tokens = Tokens(subject, subject.stack.num_tokens, 2);
  ExecutionContext alone(1);
  const Outcome expected = RunOne(*subject.model, tokens, {11, 25}, alone);
  for (const int threads : {2, 3, 8}) {
    ExecutionContext context(threads, /*oversubscribe=*/true);
    ExpectSameBits(expected, RunOne(*subject.model, tokens, {11, 25}, context), absl::StrCat(threads, " threads"));
  }
}

void ExpectSameBitsForFewerLogits(const ConformanceSubject& subject) {
  ExecutionContext context(2);
  const int64_t vocab = subject.model->vocab_size();
  const std::vector<int32_t> tokens = Tokens(subject, 3 * C + 2, 3), neighbour = Tokens(subject, C, 4);
  const Outcome expected = RunOne(*subject.model, tokens, {}, context);
  SequenceState sequence = subject.model->NewSequence(), silent = subject.model->NewSequence();
  std::vector<float> logits(vocab);
  const absl::Status status = subject.model->Extend(
      {{&silent, neighbour, {}}, {&sequence, tokens, MatrixView<float>(logits.data(), 1, vocab)}}, context);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(CountDifferentBits(logits, Row(expected.run, 3 * C + 1, vocab)), 0);
  EXPECT_EQ(CountDifferentBits(sequence.Export().value(), expected.state), 0);
  EXPECT_EQ(CountDifferentBits(silent.Export().value(), RunOne(*subject.model, neighbour, {}, context).state), 0);
}

void ExpectForksAreIndependent(const ConformanceSubject& subject) {
  ExecutionContext context(2);
  const int64_t length = subject.stack.num_tokens;
  for (const int64_t at : {int64_t{0}, C - 1, 3 * C, length - 3}) {
    std::vector<int32_t> original_tokens = Tokens(subject, length, 5), fork_tokens = Tokens(subject, length, 6);
    std::copy_n(original_tokens.begin(), at, fork_tokens.begin());
    SequenceState original = subject.model->NewSequence();
    Run(*subject.model, {{&original, absl::MakeConstSpan(original_tokens).first(at), {}}}, context);
    SequenceState fork = original.Fork();
    EXPECT_EQ(fork.position(), at);
    EXPECT_EQ(fork.ByteSize(), original.ByteSize());
    EXPECT_EQ(CountDifferentBits(fork.Export().value(), original.Export().value()), 0);
    // In turns, then the rest.
    const auto extend = [&](SequenceState* sequence, const std::vector<int32_t>& tokens, int64_t count) {
      const absl::Span<const int32_t> next = absl::MakeConstSpan(tokens).subspan(sequence->position(), count);
      Run(*subject.model, {{sequence, next, {}}}, context);
    };
    extend(&fork, fork_tokens, 2);
    extend(&original, original_tokens, 3);
    extend(&fork, fork_tokens, length - at - 2);
    extend(&original, original_tokens, length - at - 3);
    EXPECT_EQ(CountDifferentBits(original.Export().value(), RunOne(*subject.model, original_tokens, {}, context).state),
              0);
    EXPECT_EQ(CountDifferentBits(fork.Export().value(), RunOne(*subject.model, fork_tokens, {}, context).state), 0);
  }
}

void ExpectCausality(const ConformanceSubject& subject) {
  ExecutionContext context(2);
  const int64_t length = subject.stack.num_tokens;
  const int64_t vocab = subject.model->vocab_size();
  const std::vector<int32_t> tokens = Tokens(subject, length, 7);
  const Outcome expected = RunOne(*subject.model, tokens, {}, context);
  for (const int64_t changed :
       {int64_t{0}, int64_t{1}, C - 1, C, C + 1, 2 * C - 1, 2 * C, 2 * C + 3, 3 * C, 3 * C + 1, length - 1}) {
    std::vector<int32_t> others = tokens;
    others[changed] = static_cast<int32_t>((others[changed] + 1) % vocab);
    const Outcome outcome = RunOne(*subject.model, others, {}, context);
    EXPECT_EQ(FirstDifference(outcome.run, expected.run, length), changed);
    EXPECT_GT(CountDifferentBits(Row(outcome.run, changed, vocab), Row(expected.run, changed, vocab)), vocab / 2)
        << "token " << changed;
  }
}

void ExpectPredictedStateSize(const ConformanceSubject& subject) {
  ExecutionContext context(2);
  const bool is_bound = SizeIsUpperBound(subject);
  const std::vector<int32_t> tokens = Tokens(subject, subject.stack.num_tokens, 8);
  SequenceState sequence = subject.model->NewSequence();
  for (int64_t position = 0;; ++position) {
    const std::string at = absl::StrCat("position ", position);
    const StateSize predicted = subject.model->SizeOf(position);
    ExpectSize(sequence.ByteSize(), predicted.bytes, is_bound, at);
    ExpectSize(sequence.NumRows(), predicted.rows, is_bound, at);
    if (position == subject.stack.num_tokens || ::testing::Test::HasFatalFailure()) break;
    Run(*subject.model, {{&sequence, absl::MakeConstSpan(tokens).subspan(position, 1), {}}}, context);
  }

  SequenceState at_once = subject.model->NewSequence();
  Run(*subject.model, {{&at_once, tokens, {}}}, context);
  EXPECT_EQ(at_once.ByteSize(), sequence.ByteSize());
}

void ExpectBadBatchesChangeNothing(const ConformanceSubject& subject) {
  ExecutionContext context(2);
  const LanguageModel& model = *subject.model;
  const int64_t vocab = model.vocab_size();
  const std::vector<int32_t> past = Tokens(subject, 3 * C + 3, 9), good = Tokens(subject, 4, 10);
  SequenceState a = model.NewSequence(), b = model.NewSequence();
  Run(model, {{&a, past, {}}, {&b, past, {5}}}, context);
  const std::vector<NamedTensor> before_a = a.Export().value(), before_b = b.Export().value();

  StackSpec other_spec = subject.stack.spec;
  other_spec.set_vocab_size(other_spec.vocab_size() + 1);
  const ConformanceSubject other({"other", other_spec, 1, 1}, subject.options);
  SequenceState foreign = other.model->NewSequence(), empty;
  std::vector<int32_t> too_large = good, negative = good;
  too_large[3] = static_cast<int32_t>(vocab);
  negative[0] = -1;
  std::vector<float> room(5 * (vocab + 1));
  const auto logits = [&](int64_t rows, int64_t cols) { return MatrixView<float>(room.data(), rows, cols); };

  // In every batch sequence `a` has good tokens and comes first.
  const std::vector<std::pair<std::string, SequenceInput>> bad = {
      {"a token past the vocabulary", {&b, too_large, {}}},
      {"a negative token", {&b, negative, {}}},
      {"a sequence twice", {&a, good, {}}},
      {"logits for half the tokens", {&b, good, logits(2, vocab)}},
      {"too many logits", {&b, good, logits(5, vocab)}},
      {"wide logits", {&b, good, logits(4, vocab + 1)}},
      {"narrow logits", {&b, good, logits(1, vocab - 1)}},
      {"logits without tokens", {&b, {}, logits(1, vocab)}},
      {"another stack's state", {&foreign, good, {}}},
      {"no stack's state", {&empty, good, {}}},
      {"no sequence", {nullptr, good, {}}},
  };
  for (const auto& [what, input] : bad) {
    const absl::Status status = model.Extend({{&a, good, {}}, input}, context);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what << ": " << status;
    EXPECT_FALSE(status.message().empty()) << what;
  }
  EXPECT_EQ(a.position(), 3 * C + 3);
  EXPECT_EQ(CountDifferentBits(a.Export().value(), before_a), 0);
  EXPECT_EQ(CountDifferentBits(b.Export().value(), before_b), 0);
  EXPECT_EQ(foreign.position(), 0);

  EXPECT_TRUE(model.Extend({}, context).ok());
  EXPECT_TRUE(model.Extend({{&a, {}, {}}}, context).ok());
  EXPECT_EQ(CountDifferentBits(a.Export().value(), before_a), 0);
}

void ExpectNearSteps(const ConformanceSubject& chunked) {
  ModelOptions steps_options = chunked.options;
  steps_options.chunked_recurrences = false;
  const ConformanceSubject steps(chunked.stack, steps_options);
  ExecutionContext context(2);
  // Those of the comparison with the reference, for which rounding decides no route.
  const std::vector<int32_t> tokens = Tokens(chunked, chunked.stack.num_tokens, chunked.stack.seed);
  const Outcome expected = RunOne(*steps.model, tokens, {}, context);
  float largest = 0;
  for (const float logit : expected.run.logits) largest = std::max(largest, std::abs(logit));
  for (const std::vector<int64_t>& pieces : std::vector<std::vector<int64_t>>{{}, {1, 17, 2, 40}}) {
    const Outcome outcome = RunOne(*chunked.model, tokens, pieces, context);
    EXPECT_GT(CountDifferentBits(outcome.run, expected.run), 0) << "the option has no effect";
    for (size_t i = 0; i < expected.run.logits.size(); ++i) {
      ASSERT_NEAR(outcome.run.logits[i], expected.run.logits[i], 1e-5f * largest) << i;
    }
  }
  ExpectSameBits(expected, RunOne(*chunked.model, tokens, {1}, context), "single tokens are steps");
}

}  // namespace kvm
