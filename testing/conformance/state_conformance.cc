#include "testing/conformance/state_conformance.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/model/engine/state_size.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/state/state_fields.h"
#include "testing/conformance/model_runs.h"

namespace kvm {
namespace {

constexpr int64_t C = kTestChunk;

StateFields FieldsOf(const SequenceState& sequence) {
  StateFields fields;
  EXPECT_TRUE(sequence.Save(StateWriter(&fields)).ok());
  return fields;
}

// Restores a new sequence of the model and checks that nothing is left.
absl::Status RestoreNew(const LanguageModel& model, const StateFields& fields, SequenceState* restored) {
  *restored = model.NewSequence();
  const StateReader in(fields);
  const absl::Status status = restored->Restore(in);
  return status.ok() ? in.Finish() : status;
}

void ExpectSameFields(const StateFields& a, const StateFields& b, const std::string& what) {
  ASSERT_EQ(a.numbers.size(), b.numbers.size()) << what;
  for (size_t i = 0; i < a.numbers.size(); ++i) {
    EXPECT_EQ(a.numbers[i].name, b.numbers[i].name) << what;
    EXPECT_EQ(a.numbers[i].value, b.numbers[i].value) << what << ", " << a.numbers[i].name;
  }
  ASSERT_EQ(a.tensors.size(), b.tensors.size()) << what;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const std::string& name = a.tensors[i].name;
    const TensorView &x = a.tensors[i].view, &y = b.tensors[i].view;
    EXPECT_EQ(name, b.tensors[i].name) << what;
    ASSERT_EQ(x.dtype, y.dtype) << what << ", " << name;
    ASSERT_EQ(x.shape, y.shape) << what << ", " << name;
    EXPECT_EQ(std::memcmp(x.data, y.data, static_cast<size_t>(x.byte_size())), 0) << what << ", " << name;
  }
}

std::vector<SequenceRun> Run(const LanguageModel& model, absl::Span<const RunInput> inputs, ExecutionContext& context) {
  absl::StatusOr<std::vector<SequenceRun>> runs = RunInPieces(model, inputs, context);
  EXPECT_TRUE(runs.ok()) << runs.status();
  return runs.ok() ? *std::move(runs) : std::vector<SequenceRun>(inputs.size());
}

bool SizeIsUpperBound(const ConformanceSubject& subject) {
  const auto& mixers = subject.stack.spec.mixers();
  const MixerKinds& kinds = KindsOf(subject.options);
  return std::any_of(mixers.begin(), mixers.end(), [&](const MixerSpec& m) { return IsUpperBound(m, kinds); });
}

void ExpectRefused(const LanguageModel& model, const StateFields& fields, const std::string& name,
                   const std::string& what) {
  SequenceState restored;
  const absl::Status status = RestoreNew(model, fields, &restored);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name << " " << what;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(name)) << what;
}

// Whether a number can have one value only, given the position.
bool IsDetermined(const std::string& name) {
  for (const char* const ending : {".begin", ".end", ".covered", ".centroids"}) {
    if (absl::EndsWith(name, ending)) return true;
  }
  return false;
}

void ExpectBadNumbersAreRefused(const LanguageModel& model, const StateFields& good) {
  for (size_t i = 0; i < good.numbers.size(); ++i) {
    const std::string& name = good.numbers[i].name;
    StateFields bad = good;
    bad.numbers.erase(bad.numbers.begin() + static_cast<int64_t>(i));
    ExpectRefused(model, bad, name, "is missing");
    bad = good;
    bad.numbers.push_back(bad.numbers[i]);
    ExpectRefused(model, bad, name, "is there twice");
    std::vector<int64_t> values = {-1, kMaxPosition + 1};
    if (IsDetermined(name)) values.insert(values.end(), {good.numbers[i].value - 1, good.numbers[i].value + 1});
    for (const int64_t value : values) {
      bad = good;
      bad.numbers[i].value = value;
      ExpectRefused(model, bad, name, absl::StrCat("is ", value));
    }
  }
}

void ExpectBadTensorsAreRefused(const LanguageModel& model, const StateFields& good) {
  for (size_t i = 0; i < good.tensors.size(); ++i) {
    const std::string& name = good.tensors[i].name;
    StateFields bad = good;
    bad.tensors.erase(bad.tensors.begin() + static_cast<int64_t>(i));
    ExpectRefused(model, bad, name, "is missing");
    bad = good;
    bad.tensors.push_back(bad.tensors[i]);
    ExpectRefused(model, bad, name, "is there twice");
    bad = good;
    bad.tensors[i].view.dtype = DType::kU8;
    ExpectRefused(model, bad, name, "is of another type");
    bad = good;
    bad.tensors[i].view.shape.push_back(1);
    ExpectRefused(model, bad, name, "has a dimension more");
    bad = good;
    bad.tensors[i].view.shape[0] -= 1;
    ExpectRefused(model, bad, name, "is shorter");
  }
}

std::set<std::string> NamesOf(const StateFields& fields) {
  std::set<std::string> names;
  for (const StateNumber& number : fields.numbers) names.insert(number.name);
  for (const StateTensor& tensor : fields.tensors) names.insert(tensor.name);
  return names;
}

}  // namespace

void ExpectRestoredStatesGoOn(const ConformanceSubject& subject) {
  const LanguageModel& model = *subject.model;
  const int64_t length = subject.stack.num_tokens, vocab = model.vocab_size();
  const bool is_bound = SizeIsUpperBound(subject);
  const std::vector<int32_t> tokens = TestTokens(subject.stack.spec, length, 11);
  const absl::Span<const int32_t> all = tokens;

  ExecutionContext alone(1);
  SequenceState original = model.NewSequence();
  std::vector<float> logits;  // of every token
  std::vector<SequenceState> restored(length + 1);
  for (int64_t position = 0; position <= length; ++position) {
    const std::string at = absl::StrCat("position ", position);
    const StateFields fields = FieldsOf(original);
    ASSERT_EQ(fields.ByteSize(), original.ByteSize()) << at;
    const int64_t predicted = model.SizeOf(position).bytes;
    if (is_bound) {
      ASSERT_LE(fields.ByteSize(), predicted) << at;
    } else {
      ASSERT_EQ(fields.ByteSize(), predicted) << at;
    }
    const absl::Status status = RestoreNew(model, fields, &restored[position]);
    ASSERT_TRUE(status.ok()) << at << ": " << status;
    EXPECT_EQ(restored[position].position(), position);
    ExpectSameFields(FieldsOf(restored[position]), fields, at);
    if (position == length) break;
    const SequenceRun run = Run(model, {{&original, all.subspan(position, 1), {}}}, alone)[0];
    logits.insert(logits.end(), run.logits.begin(), run.logits.end());
  }

  // All of them to the end, as one batch.
  ExecutionContext context(3, /*oversubscribe=*/true);
  std::vector<RunInput> inputs;
  for (int64_t p = 0; p <= length; ++p) inputs.push_back({&restored[p], all.subspan(p), {C + 3}});
  const std::vector<SequenceRun> runs = Run(model, inputs, context);
  for (int64_t p = 0; p <= length; ++p) {
    const absl::Span<const float> expected = absl::MakeConstSpan(logits).subspan(p * vocab);
    EXPECT_EQ(CountDifferentBits(runs[p].logits, expected), 0) << "restored at " << p;
    ExpectSameFields(FieldsOf(restored[p]), FieldsOf(original), absl::StrCat("restored at ", p));
  }
}

void ExpectBadFieldsAreRefused(const ConformanceSubject& subject) {
  ExecutionContext context(1);
  const LanguageModel& model = *subject.model;
  const std::vector<int32_t> tokens = TestTokens(subject.stack.spec, subject.stack.num_tokens, 12);
  for (const int64_t position : {int64_t{3}, subject.stack.num_tokens}) {
    SequenceState sequence = model.NewSequence(), restored;
    Run(model, {{&sequence, absl::MakeConstSpan(tokens).first(position), {}}}, context);
    const StateFields good = FieldsOf(sequence);
    ASSERT_TRUE(RestoreNew(model, good, &restored).ok());
    ExpectBadNumbersAreRefused(model, good);
    ExpectBadTensorsAreRefused(model, good);
    StateFields more = good;
    more.numbers.push_back({"stowaway", 1});
    ExpectRefused(model, more, "stowaway", "is a number too many");
    more = good;
    more.tensors.push_back(good.tensors.front());
    more.tensors.back().name = "stowaway";
    ExpectRefused(model, more, "stowaway", "is a tensor too many");
  }
}

void ExpectForksShareUntilExtended(const ConformanceSubject& subject) {
  ExecutionContext context(2);
  const LanguageModel& model = *subject.model;
  const int64_t length = subject.stack.num_tokens;
  for (const int64_t at : {C + 1, length - C}) {
    std::vector<int32_t> tokens = TestTokens(subject.stack.spec, length, 13);
    std::vector<int32_t> others = TestTokens(subject.stack.spec, length, 14);
    std::copy_n(tokens.begin(), at, others.begin());
    SequenceState original = model.NewSequence();
    Run(model, {{&original, absl::MakeConstSpan(tokens).first(at), {}}}, context);
    SequenceState fork = original.Fork();
    const StateFields of_original = FieldsOf(original), of_fork = FieldsOf(fork);
    for (size_t i = 0; i < of_fork.tensors.size(); ++i) {
      const std::string& name = of_fork.tensors[i].name;
      if (absl::EndsWith(name, "_shift")) continue;  // single rows, which are copied
      EXPECT_EQ(of_fork.tensors[i].view.data, of_original.tensors[i].view.data) << name;
    }

    const auto extend = [&](SequenceState* sequence, const std::vector<int32_t>& with) {
      ExecutionContext own(1);
      Run(model, {{sequence, absl::MakeConstSpan(with).subspan(at), {1, C}}}, own);
    };
    std::thread thread(extend, &fork, others);
    extend(&original, tokens);
    thread.join();
    for (const auto& [sequence, with] : {std::make_pair(&original, &tokens), std::make_pair(&fork, &others)}) {
      SequenceState whole = model.NewSequence();
      Run(model, {{&whole, *with, {}}}, context);
      ExpectSameFields(FieldsOf(*sequence), FieldsOf(whole), absl::StrCat("forked at ", at));
    }
  }
}

void ExpectForeignStatesAreRefused(absl::Span<const ConformanceSubject> subjects) {
  ExecutionContext context(1);
  const int64_t length = 2 * C + 1;
  std::vector<SequenceState> states;
  for (const ConformanceSubject& subject : subjects) {
    const std::vector<int32_t> tokens = TestTokens(subject.stack.spec, length, 15);
    states.push_back(subject.model->NewSequence());
    Run(*subject.model, {{&states.back(), tokens, {}}}, context);
  }
  int64_t refused = 0;
  for (const ConformanceSubject& subject : subjects) {
    const std::set<std::string> own = NamesOf(FieldsOf(states[static_cast<size_t>(&subject - subjects.data())]));
    for (size_t i = 0; i < subjects.size(); ++i) {
      const std::string what = absl::StrCat("state of ", subjects[i].stack.name, " for ", subject.stack.name);
      const StateFields fields = FieldsOf(states[i]);
      SequenceState restored;
      const absl::Status status = RestoreNew(*subject.model, fields, &restored);
      if (NamesOf(fields) != own) {
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what;
      }
      if (!status.ok()) {
        ++refused;
        continue;
      }
      Run(*subject.model, {{&restored, TestTokens(subject.stack.spec, 2 * C, 16), {}}}, context);
      EXPECT_EQ(restored.position(), length + 2 * C) << what;
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace kvm
