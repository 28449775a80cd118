// Key-Value Means. New tensors begin as parameter.h says; key_weighting zero, so that the merge gate is 1;
// temperatures 1.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kvm/base/format_count.h"
#include "kvm/base/status_macros.h"
#include "kvm/model/stack/kinds/kind_sizes.h"
#include "kvm/model/stack/kinds/kinds.h"
#include "kvm/model/stack/kinds/projections.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/state/block_window.h"
#include "kvm/state/slot_memory.h"

namespace kvm {
namespace {

// With factors below this, budgets of contexts up to 2^40 tokens fit int64.
constexpr double kMaxFactor = 1e6;

// A cap that no context reaches.
constexpr int32_t kManyChunks = 10000;
// What published growing states begin with.
constexpr int32_t kMinRows = 256;

const ProjectionSpec& KvmProjections(const MixerSpec& mixer) { return mixer.kvm().projections(); }
ProjectionSpec* MutableKvmProjections(MixerSpec* mixer) { return mixer->mutable_kvm()->mutable_projections(); }

void CheckBudget(const BudgetSpec& spec, const std::string& path, StackChecker* check) {
  if (spec.growth() == BudgetSpec::POWER_LAW) {
    check->Above(absl::StrCat(path, ".factor"), spec.factor(), 0, kMaxFactor);
    if (!(spec.exponent() >= 0 && spec.exponent() <= 1)) {
      check->Add(absl::StrCat(path, ".exponent"), NumberText(spec.exponent()), "a number from 0 to 1");
    }
  }
  if (spec.growth() == BudgetSpec::SATURATION) {
    check->Above(absl::StrCat(path, ".limit"), spec.limit(), 0, 1e12);
  }
  check->Whole(absl::StrCat(path, ".round_down"), spec.round_down(), 1);
  check->Whole(absl::StrCat(path, ".min_rows"), spec.min_rows(), -1);
  check->Whole(absl::StrCat(path, ".max_chunks"), spec.max_chunks(), 1);
  if (std::isnan(spec.append_below())) {
    check->Add(absl::StrCat(path, ".append_below"), NumberText(spec.append_below()), "a number, inf or -inf");
  }
}

// The budget of all heads, or one of each.
void CheckBudgets(const KvmSpec& spec, const std::string& path, StackChecker* check) {
  if (spec.head_budgets().empty()) {
    CheckBudget(spec.budget(), absl::StrCat(path, ".budget"), check);
    return;
  }
  const std::string heads_path = absl::StrCat(path, ".head_budgets");
  const ProjectionSpec& projections = spec.projections();
  const int32_t heads = projections.has_num_kv_heads() ? projections.num_kv_heads() : projections.num_heads();
  if (spec.head_budgets_size() != heads) {
    check->Add(heads_path, absl::StrCat(spec.head_budgets_size(), " budgets"),
               absl::StrCat("none, or one for each of the ", heads, " key/value heads"));
  }
  if (spec.has_budget()) {
    check->Add(heads_path, "budgets of heads beside one of all", "either budget or head_budgets");
  }
  for (int i = 0; i < spec.head_budgets_size(); ++i) {
    CheckBudget(spec.head_budgets(i), absl::StrCat(heads_path, "[", i, "]"), check);
  }
}

void CheckMerges(const KvmSpec& spec, const std::string& path, StackChecker* check) {
  // A mean counts its tokens as whole ones.
  const std::string whole_tokens = ", as use_radius is false";
  const auto fraction = [&](const std::string& field, double value, double neutral) {
    if (!(value >= 0 && value <= 1)) {
      check->Add(absl::StrCat(path, field), NumberText(value), "a number from 0 to 1");
    } else if (!spec.use_radius() && value != neutral) {
      check->Add(absl::StrCat(path, field), NumberText(value), absl::StrCat(neutral, whole_tokens));
    }
  };
  fraction(".second_merge", spec.second_merge(), 0);
  fraction(".merge_decay", spec.merge_decay(), 1);
}

void CheckKvm(const MixerSpec& mixer, int64_t width, const std::string& path, StackChecker* check) {
  const KvmSpec& spec = mixer.kvm();
  CheckProjections(spec.projections(), width, RotaryUse::kNotAllChannels, absl::StrCat(path, ".projections"), check);
  const size_t problems_before = check->count();
  check->Whole(absl::StrCat(path, ".chunk_len"), spec.chunk_len(), 1);
  check->Whole(absl::StrCat(path, ".window_chunks"), spec.window_chunks(), 1);
  check->Whole(absl::StrCat(path, ".num_sinks"), spec.num_sinks(), 0);
  if (check->count() == problems_before && spec.num_sinks() > spec.chunk_len()) {
    check->Add(absl::StrCat(path, ".num_sinks"), absl::StrCat(spec.num_sinks()),
               absl::StrCat("at most chunk_len (", spec.chunk_len(), ")"));
  }
  CheckBudgets(spec, path, check);
  CheckMerges(spec, path, check);
  if (check->count() != problems_before || spec.num_sinks() != spec.chunk_len()) return;
  // The first chunk is all sinks, so the first update must append a row that merges can go to.
  const int64_t chunk = spec.chunk_len();
  const int64_t first_context = chunk + chunk * spec.window_chunks();
  std::vector<BudgetSpec> budgets(spec.head_budgets().begin(), spec.head_budgets().end());
  if (budgets.empty()) budgets.push_back(spec.budget());
  for (const BudgetSpec& budget_spec : budgets) {
    const SlotBudget budget = ToSlotBudget(budget_spec);
    const bool always_appends = budget.append_below == std::numeric_limits<double>::infinity();
    if (always_appends && TargetRows(budget, first_context, 2 * chunk, chunk, chunk) > chunk) continue;
    check->Add(absl::StrCat(path, ".num_sinks"), absl::StrCat(spec.num_sinks()),
               absl::StrCat("less than chunk_len (", chunk,
                            "), or a budget that adds a row at the first update: no row could take a merge"));
    return;
  }
}

void AppendKvmParameters(const MixerSpec& mixer, const LayerPlace& place, const std::string& prefix,
                         std::vector<Parameter>* parameters) {
  const KvmSpec& spec = mixer.kvm();
  AppendProjectionParameters(spec.projections(), /*head_norms=*/true, place, prefix, parameters);
  const HeadSizes heads = ResolveHeads(spec.projections(), place.width);
  AppendNorm(prefix + "ln_s_k", heads.qk_dim, parameters);
  if (spec.gate_keys() || spec.gate_values()) {
    AppendVector(prefix + "key_weighting.weight", {heads.num_kv_heads, place.width}, Initialization::Fill(0),
                 parameters);
  }
  if (spec.head_temperatures()) {
    AppendVector(prefix + "front_head_temp", {heads.num_heads}, Initialization::Fill(1), parameters);
    AppendVector(prefix + "state_head_temp", {heads.num_heads}, Initialization::Fill(1), parameters);
  }
}

// With a budget that adapts to what is read: the most rows there can be.
int64_t KvmRows(const KvmSpec& spec, const SlotBudget& budget, int64_t context) {
  const int64_t chunk = spec.chunk_len();
  const int64_t window = chunk * spec.window_chunks();
  const int64_t window_begin = std::max<int64_t>(0, BlocksOf(context, chunk) * chunk - window);
  int64_t rows = std::min(context, chunk);
  for (int64_t dropped = chunk; dropped < window_begin; dropped += chunk) {
    rows = std::min(TargetRows(budget, dropped + window, dropped + chunk, chunk, rows), rows + chunk);
  }
  return rows;
}

// Of the head with most.
int64_t MostRows(const KvmSpec& spec, int64_t context) {
  if (spec.head_budgets().empty()) return KvmRows(spec, ToSlotBudget(spec.budget()), context);
  int64_t rows = 0;
  for (const BudgetSpec& budget : spec.head_budgets()) {
    rows = std::max(rows, KvmRows(spec, ToSlotBudget(budget), context));
  }
  return rows;
}

StateSize KvmSize(const MixerSpec& mixer, int64_t width, const StateQuery& query) {
  const KvmSpec& spec = mixer.kvm();
  const int64_t context = query.context;
  const HeadSizes heads = ResolveHeads(spec.projections(), width);
  const int64_t chunk = spec.chunk_len();
  const BlockWindowShape shape = {heads.num_kv_heads, heads.qk_dim, heads.v_dim, chunk, WindowDType(query.dtype)};
  const int64_t blocks = std::min<int64_t>(BlocksOf(context, chunk), spec.window_chunks());
  const int64_t window_begin = (BlocksOf(context, chunk) - blocks) * chunk;
  StateSize size;
  size.bytes = ShiftHistoryBytes(spec.projections(), width) + blocks * BlockWindow::BlockByteSize(shape);
  const auto add = [&](const BudgetSpec& budget, int64_t num_heads) {
    const int64_t rows = KvmRows(spec, ToSlotBudget(budget), context);
    size.rows = std::max(size.rows, rows);
    size.bytes += num_heads * SlotMemory::ByteSizeOf(rows, heads.qk_dim, heads.v_dim, query.dtype);
  };
  for (const BudgetSpec& budget : spec.head_budgets()) add(budget, 1);
  if (spec.head_budgets().empty()) add(spec.budget(), heads.num_kv_heads);
  if (spec.gate_keys() || spec.gate_values()) {
    size.bytes += heads.num_kv_heads * (context - window_begin) * kFloatBytes;
  }
  if (query.provenance) {
    const int64_t covered = std::max(std::min(context, chunk), window_begin);
    size.bytes += heads.num_kv_heads * covered * static_cast<int64_t>(sizeof(int32_t));
  }
  return size;
}

MixerCost CostOfKvm(const MixerSpec& mixer, int64_t width, DType dtype, int64_t position) {
  const KvmSpec& spec = mixer.kvm();
  const int64_t total = position + 1;
  const HeadSizes heads = ResolveHeads(spec.projections(), width);
  const int64_t window_begin = WindowBegin(total, spec.chunk_len(), spec.window_chunks());
  MixerCost cost = CostOfKeys(heads, total - window_begin, WindowDType(dtype));
  if (window_begin > 0) {
    const int64_t rows = MostRows(spec, total);
    const MixerCost state = CostOfKeys(heads, rows, dtype);
    cost.flop += state.flop;
    cost.bytes += state.bytes;
    // Every token is routed once.
    cost.flop += 2 * SizeProduct(heads.num_kv_heads, heads.qk_dim, rows);
  }
  return cost;
}

std::string DescribeBudget(const KvmSpec& kvm, const BudgetSpec& budget) {
  std::string text;
  switch (budget.growth()) {
    case BudgetSpec::FIXED:
      text = budget.min_rows() < 0 ? "rows of one chunk" : FormatCounted(budget.min_rows(), "row");
      break;
    case BudgetSpec::POWER_LAW:
      text = absl::StrCat(budget.factor(), "*context^", budget.exponent(), " rows");
      if (LeastRows(kvm, budget) > 0) absl::StrAppend(&text, ", at least ", LeastRows(kvm, budget));
      break;
    case BudgetSpec::SATURATION:
      text = absl::StrCat("rows saturating at ", budget.limit());
      break;
  }
  if (std::isinf(budget.append_below()) && budget.append_below() > 0) return text;
  return absl::StrCat("at most ", text, ", appending below ", budget.append_below());
}

std::string DescribeKvm(const MixerSpec& mixer, int64_t width) {
  const KvmSpec& spec = mixer.kvm();
  std::string text = absl::StrCat("KVM, ", DescribeHeads(spec.projections(), width), DescribeRotary(spec.projections()),
                                  ", ", DescribeWindow(spec.window_chunks(), spec.chunk_len()), ", ");
  if (spec.head_budgets().empty()) {
    absl::StrAppend(&text, DescribeBudget(spec, spec.budget()));
  } else {
    const auto append = [&](std::string* out, const BudgetSpec& budget) { out->append(DescribeBudget(spec, budget)); };
    absl::StrAppend(&text, "head by head ", absl::StrJoin(spec.head_budgets(), " | ", append));
  }
  if (spec.second_merge() != 0) absl::StrAppend(&text, ", second merge ", spec.second_merge());
  if (spec.merge_decay() != 1) absl::StrAppend(&text, ", merge decay ", spec.merge_decay());
  if (spec.separate_rotary()) absl::StrAppend(&text, ", separate rotary");
  return text;
}

void DropUnusedNumbers(BudgetSpec* budget) {
  if (budget->growth() != BudgetSpec::POWER_LAW) {
    budget->clear_factor();
    budget->clear_exponent();
  }
  if (budget->growth() != BudgetSpec::SATURATION) budget->clear_limit();
  if (budget->growth() == BudgetSpec::FIXED) budget->clear_round_down();
}

void ResolveKvm(int64_t width, MixerSpec* mixer) {
  projections_internal::Resolve(width, MutableKvmProjections(mixer));
  KvmSpec& spec = *mixer->mutable_kvm();
  if (spec.has_budget()) DropUnusedNumbers(spec.mutable_budget());
  for (BudgetSpec& budget : *spec.mutable_head_budgets()) DropUnusedNumbers(&budget);
}

bool AdaptsToText(const MixerSpec& mixer) {
  const auto adapts = [](const BudgetSpec& budget) {
    return budget.append_below() != std::numeric_limits<double>::infinity();
  };
  const auto& budgets = mixer.kvm().head_budgets();
  return budgets.empty() ? adapts(mixer.kvm().budget()) : std::any_of(budgets.begin(), budgets.end(), adapts);
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

absl::StatusOr<BudgetSpec> ParseBudget(const PatternSizes& sizes) {
  const std::vector<std::string> parts = absl::StrSplit(sizes.budget, ':');
  std::vector<double> numbers;
  BudgetSpec budget;
  if (parts[0] == "fixed" && ParseNumbers(parts, 1, &numbers) && IsWhole(numbers[0])) {
    const int64_t rows = static_cast<int64_t>(numbers[0]);
    budget.set_growth(BudgetSpec::FIXED);
    budget.set_min_rows(static_cast<int32_t>(rows));
    budget.set_max_chunks(static_cast<int32_t>((rows + sizes.chunk - 1) / sizes.chunk));
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
    return absl::InvalidArgumentError(absl::StrCat("--budget=", sizes.budget, ": ", kBudgetForms));
  }
  return budget;
}

absl::Status FillKvm(const PatternSizes& sizes, MixerSpec* mixer) {
  KvmSpec* spec = mixer->mutable_kvm();
  FillProjections(sizes, spec->mutable_projections());
  spec->set_chunk_len(static_cast<int32_t>(sizes.chunk));
  spec->set_window_chunks(static_cast<int32_t>(sizes.window_chunks));
  spec->set_num_sinks(static_cast<int32_t>(sizes.sinks));
  ASSIGN_OR_RETURN(*spec->mutable_budget(), ParseBudget(sizes));
  return absl::OkStatus();
}

constexpr MixerPattern kPatterns[] = {{'K', "kvm", "KVM", FillKvm}};

}  // namespace

const MixerKind& KvmKind() {
  static const MixerKind kind = [] {
    MixerKind made;
    made.name = "kvm";
    made.field_number = MixerSpec::kKvmFieldNumber;
    SetProjectionFacts<KvmProjections, MutableKvmProjections>(&made);
    made.check = CheckKvm;
    made.append_parameters = AppendKvmParameters;
    made.state_size = KvmSize;
    made.token_cost = CostOfKvm;
    made.describe = DescribeKvm;
    made.resolve = ResolveKvm;
    made.is_upper_bound = AdaptsToText;
    made.chunk_len = [](const MixerSpec& mixer) -> int64_t { return mixer.kvm().chunk_len(); };
    made.patterns = kPatterns;
    return made;
  }();
  return kind;
}

}  // namespace kvm
