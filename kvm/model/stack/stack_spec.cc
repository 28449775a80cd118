#include "kvm/model/stack/stack_spec.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "kvm/base/status_macros.h"
#include "kvm/model/stack/delta_net_spec.h"
#include "kvm/model/stack/stack_checker.h"
#include "kvm/model/stack/stack_problems.h"

namespace kvm {
namespace {

// Keeps the first error; later ones are mostly its consequences.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!message_.empty()) return;
    message_ = line < 0 ? absl::StrCat(" ", message) : absl::StrCat(line + 1, ":", column + 1, ": ", message);
    // Of the number's type. What fields may be ends long before that.
    if (absl::StartsWith(message, "Integer out of range")) {
      absl::StrAppend(&message_, "; expected a whole number of at most ", kMaxSpecSize);
    }
  }
  void AddWarning(int, int, const std::string&) override {}

  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

}  // namespace

absl::StatusOr<StackSpec> ParseStackSpec(absl::string_view text, const std::string& source) {
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  StackSpec spec;
  if (!parser.ParseFromString(std::string(text), &spec)) {
    return absl::InvalidArgumentError(absl::StrCat(source, ":", error.message()));
  }
  const absl::Status status = ValidateStack(spec);
  if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat(source, ": ", status.message()));
  return spec;
}

std::string FormatStackSpec(const StackSpec& spec) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(spec, &text);
  return text;
}

absl::Status ValidateStack(const StackSpec& spec) {
  size_t count = 0;
  const std::vector<StackProblem> problems = FindStackProblems(spec, &count);
  if (problems.empty()) return absl::OkStatus();
  std::string message;
  for (const StackProblem& problem : problems) {
    absl::StrAppend(&message, message.empty() ? "" : "; ", problem.path, ": got ", problem.got, ", expected ",
                    problem.expected);
  }
  if (count > problems.size()) absl::StrAppend(&message, "; and ", count - problems.size(), " more");
  return absl::InvalidArgumentError(message);
}

int MixerIndex(const StackSpec& spec, int layer) {
  for (int i = 0; i < spec.mixers_size(); ++i) {
    if (spec.mixers(i).name() == spec.layers(layer)) return i;
  }
  return -1;
}

bool HasValueResidual(const MixerSpec& mixer) {
  return mixer.has_rwkv7() || (HasProjections(mixer) && Projections(mixer).value_residual() != NONE);
}

int AnchorLayer(const StackSpec& spec, int layer) {
  const MixerSpec& mixer = spec.mixers(MixerIndex(spec, layer));
  if (!HasValueResidual(mixer)) return -1;
  const std::string& anchor = mixer.has_value_anchor() ? mixer.value_anchor() : mixer.name();
  return static_cast<int>(std::find(spec.layers().begin(), spec.layers().end(), anchor) - spec.layers().begin());
}

int64_t MlpWidth(const StackSpec& spec) { return static_cast<int64_t>(spec.mlp_expansion() * spec.width()) / 32 * 32; }

bool HasProjections(const MixerSpec& mixer) { return !mixer.has_rwkv7() && !IsDeltaNet(mixer); }

const ProjectionSpec& Projections(const MixerSpec& mixer) {
  if (mixer.has_kvm()) return mixer.kvm().projections();
  if (mixer.has_block_window()) return mixer.block_window().projections();
  if (mixer.has_ovq()) return mixer.ovq().projections();
  return mixer.attention().projections();
}

ProjectionSpec* MutableProjections(MixerSpec* mixer) {
  if (mixer->has_kvm()) return mixer->mutable_kvm()->mutable_projections();
  if (mixer->has_block_window()) return mixer->mutable_block_window()->mutable_projections();
  if (mixer->has_ovq()) return mixer->mutable_ovq()->mutable_projections();
  return mixer->mutable_attention()->mutable_projections();
}

HeadSizes ResolveHeads(const ProjectionSpec& spec, int64_t width) {
  HeadSizes sizes;
  sizes.num_heads = spec.num_heads();
  sizes.num_kv_heads = spec.has_num_kv_heads() ? spec.num_kv_heads() : spec.num_heads();
  sizes.qk_dim = spec.has_qk_head_dim() ? spec.qk_head_dim() : width / spec.num_heads();
  sizes.v_dim = spec.has_v_head_dim() ? spec.v_head_dim() : width / spec.num_heads();
  return sizes;
}

int64_t ValueWidth(const MixerSpec& mixer, int64_t width) {
  if (mixer.has_rwkv7()) return width;
  if (IsDeltaNet(mixer)) return ResolveDeltaNet(mixer, width).value_width();
  const HeadSizes sizes = ResolveHeads(Projections(mixer), width);
  return sizes.num_kv_heads * sizes.v_dim;
}

int64_t DefaultRank(double multiplier, double power, int64_t width) {
  // Ties go to the even multiple, as in Python's round().
  const double rank = std::nearbyint(multiplier * std::pow(static_cast<double>(width), power) / 32);
  return std::max<int64_t>(32, 32 * static_cast<int64_t>(rank));
}

int64_t ValueGateRank(const ProjectionSpec& spec, int64_t width) {
  return spec.has_value_gate_rank() ? spec.value_gate_rank() : DefaultRank(1.3, 0.5, width);
}

Rwkv7Ranks ResolveRanks(const Rwkv7Spec& spec, int64_t width) {
  Rwkv7Ranks ranks;
  ranks.decay = spec.has_decay_rank() ? spec.decay_rank() : DefaultRank(1.8, 0.5, width);
  ranks.in_context_rate = spec.has_in_context_rate_rank() ? spec.in_context_rate_rank() : DefaultRank(1.8, 0.5, width);
  ranks.value = spec.has_value_rank() ? spec.value_rank() : DefaultRank(1.3, 0.5, width);
  ranks.gate = spec.has_gate_rank() ? spec.gate_rank() : DefaultRank(0.6, 0.8, width);
  return ranks;
}

SlotBudget ToSlotBudget(const BudgetSpec& spec) {
  SlotBudget budget;
  switch (spec.growth()) {
    case BudgetSpec::FIXED:
      budget.growth = SlotBudget::Growth::kFixed;
      break;
    case BudgetSpec::POWER_LAW:
      budget.growth = SlotBudget::Growth::kPowerLaw;
      break;
    case BudgetSpec::SATURATION:
      budget.growth = SlotBudget::Growth::kSaturation;
      break;
  }
  budget.factor = spec.factor();
  budget.exponent = spec.exponent();
  budget.limit = spec.limit();
  budget.round_down = spec.round_down();
  budget.min_rows = spec.min_rows();
  budget.max_chunks = spec.max_chunks();
  budget.append_below = spec.append_below();
  return budget;
}

std::vector<SlotBudget> ToHeadBudgets(const KvmSpec& spec) {
  const ProjectionSpec& projections = spec.projections();
  const int32_t heads = projections.has_num_kv_heads() ? projections.num_kv_heads() : projections.num_heads();
  if (spec.head_budgets().empty()) return std::vector<SlotBudget>(heads, ToSlotBudget(spec.budget()));
  std::vector<SlotBudget> budgets;
  for (const BudgetSpec& budget : spec.head_budgets()) budgets.push_back(ToSlotBudget(budget));
  return budgets;
}

}  // namespace kvm
