#include "kvm/model/language_model.h"

#include <algorithm>
#include <memory_resource>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/model/cpu/cpu_engine.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/stack_plan.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/parameters.h"

namespace kvm {
namespace {

// Tells states of different stacks and engines apart.
uint64_t StackId(const StackSpec& spec, const ModelOptions& options, const Engine& engine) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : absl::StrCat(FormatStackSpec(spec), Name(options.state),
                                   options.provenance ? " provenance " : " ", engine.arithmetic())) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return hash;
}

absl::Status CheckShapes(const SequenceInput& input, int64_t vocab_size) {
  for (size_t t = 0; t < input.tokens.size(); ++t) {
    if (input.tokens[t] >= 0 && input.tokens[t] < vocab_size) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("token ", t, " is ", input.tokens[t], ", expected 0 to ", vocab_size - 1));
  }
  const int64_t tokens = static_cast<int64_t>(input.tokens.size());
  const MatrixView<float>& logits = input.logits;
  const bool rows_fit = logits.rows == 0 || logits.rows == tokens || (logits.rows == 1 && tokens > 0);
  if (rows_fit && (logits.rows == 0 || logits.cols == vocab_size)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("logits are [", logits.rows, ", ", logits.cols, "], expected 0, 1 or ",
                                                 tokens, " rows of ", vocab_size));
}

}  // namespace

LanguageModel::LanguageModel(StackSpec spec, std::unique_ptr<Engine> engine, uint64_t stack_id)
    : spec_(std::move(spec)), engine_(std::move(engine)), stack_id_(stack_id) {}
LanguageModel::~LanguageModel() = default;

absl::StatusOr<std::unique_ptr<LanguageModel>> LanguageModel::Create(const StackSpec& spec, const WeightSource& weights,
                                                                     const ModelOptions& options) {
  RETURN_IF_ERROR(ValidateStack(spec, KindsOf(options)));
  RETURN_IF_ERROR(CheckWeights(spec, weights, KindsOf(options)));
  if (options.state != DType::kF32 && options.state != DType::kBF16 && options.state != DType::kI8) {
    return absl::InvalidArgumentError(
        absl::StrCat("state dtype: got ", Name(options.state), ", expected F32, BF16 or I8"));
  }
  const EngineFactory new_engine = options.engine == nullptr ? &NewCpuEngine : options.engine;
  ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, new_engine(MakeStackPlan(spec, KindsOf(options)), weights, options));
  const uint64_t stack_id = StackId(spec, options, *engine);
  return std::unique_ptr<LanguageModel>(new LanguageModel(spec, std::move(engine), stack_id));
}

SequenceState LanguageModel::NewSequence() const {
  SequenceState sequence = engine_->NewSequence();
  SequenceAccess::SetStackId(sequence, stack_id_);
  return sequence;
}

absl::Status LanguageModel::Extend(absl::Span<const SequenceInput> batch, ExecutionContext& context) const {
  return ExtendObserved(batch, context, nullptr);
}

absl::Status LanguageModel::Extend(absl::Span<const SequenceInput> batch, ExecutionContext& context,
                                   HiddenObserver observer) const {
  return ExtendObserved(batch, context, &observer);
}

absl::Status LanguageModel::ExtendObserved(absl::Span<const SequenceInput> batch, ExecutionContext& context,
                                           const HiddenObserver* observer) const {
  try {
    RETURN_IF_ERROR(CheckBatch(batch, context));
    Pass pass(context.pool.memory());
    const int64_t max_rows = engine_->max_pass_rows();
    int64_t rows = 0;
    for (size_t i = 0; i < batch.size(); ++i) {
      const SequenceInput& input = batch[i];
      const int64_t tokens = static_cast<int64_t>(input.tokens.size());
      for (int64_t done = 0; done < tokens;) {
        const int64_t count = std::min(tokens - done, max_rows - rows);
        PassRows share = {input.sequence, input.tokens.subspan(done, count), rows, {}};
        if (input.logits.rows == tokens) {
          share.logits = input.logits.Rows(done, count);
        } else if (input.logits.rows == 1 && done + count == tokens) {
          share.logits = input.logits;
        }
        pass.shares.push_back(share);
        pass.origins.push_back({static_cast<int64_t>(i), done});
        done += count;
        rows += count;
        if (rows < max_rows) continue;
        RETURN_IF_ERROR(Run(pass, observer, context));
        pass.shares.clear();
        pass.origins.clear();
        rows = 0;
      }
    }
    return pass.shares.empty() ? absl::OkStatus() : Run(pass, observer, context);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory while extending sequences; expected room for their states");
  }
}

absl::Status LanguageModel::Run(const Pass& pass, const HiddenObserver* observer, ExecutionContext& context) const {
  RETURN_IF_ERROR(engine_->Prepare(pass.shares, context));
  for (const PassRows& share : pass.shares) SequenceAccess::BeginPass(*share.sequence);
  if (observer == nullptr) {
    RETURN_IF_ERROR(engine_->Forward(pass.shares, nullptr, context));
  } else {
    const auto translate = [&](int64_t layer, int64_t share, MatrixView<const float> x) {
      (*observer)(layer, pass.origins[share].sequence, pass.origins[share].first_token, x);
    };
    const PassObserver of_pass(translate);
    RETURN_IF_ERROR(engine_->Forward(pass.shares, &of_pass, context));
  }
  for (const PassRows& share : pass.shares) SequenceAccess::EndPass(*share.sequence, share.num_tokens());
  return absl::OkStatus();
}

absl::Status LanguageModel::CheckBatch(absl::Span<const SequenceInput> batch, ExecutionContext& context) const {
  const auto error = [](size_t i, const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat("sequence ", i, ": ", status.message()));
  };
  std::pmr::vector<const SequenceState*> seen(context.pool.memory());
  for (size_t i = 0; i < batch.size(); ++i) {
    const SequenceInput& input = batch[i];
    if (input.sequence == nullptr || input.sequence->stack_id() != stack_id_) {
      return error(i, absl::InvalidArgumentError("its state was not made by this model's NewSequence()"));
    }
    if (const absl::Status whole = input.sequence->CheckWhole(); !whole.ok()) return error(i, whole);
    if (const absl::Status shapes = CheckShapes(input, vocab_size()); !shapes.ok()) return error(i, shapes);
    seen.push_back(input.sequence);
  }
  std::sort(seen.begin(), seen.end());
  if (std::adjacent_find(seen.begin(), seen.end()) != seen.end()) {
    return absl::InvalidArgumentError("one sequence is named twice in a batch");
  }
  return absl::OkStatus();
}

}  // namespace kvm
