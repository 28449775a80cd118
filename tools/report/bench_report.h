#ifndef KVM_TOOLS_REPORT_BENCH_REPORT_H_
#define KVM_TOOLS_REPORT_BENCH_REPORT_H_

// What `kvm bench` has measured, as tables for people and as JSON for programs.

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kvm/bench/ceiling_meter.h"
#include "kvm/bench/context_bench.h"
#include "kvm/bench/operator_bench.h"
#include "nlohmann/json.hpp"

namespace kvm {

// Each of the tables ends with an empty line.
std::string CeilingTable(absl::Span<const Ceilings> ceilings);
std::string OperatorTable(absl::Span<const OperatorResult> results);
// Tokens a second while a prompt is read, around each context.
std::string PrefillTable(const ModelResult& result, absl::Span<const Ceilings> ceilings);
// Milliseconds of single tokens at each context.
std::string DecodeTable(const ModelResult& result, absl::Span<const Ceilings> ceilings);
// How times, rows and bytes grow, and the exponents of that. `weight_bytes`: of all models in this process.
std::string StateTable(absl::Span<const ModelResult> results, int64_t weight_bytes);

// The exponents a of seconds ~ context^a behind the first context: of a piece, and of all tokens together. None where
// only one context was measured.
struct GrowthExponents {
  std::optional<double> piece;
  std::optional<double> total;
};
GrowthExponents FitGrowth(const ModelResult& result);

// {"processor", "instruction_set", "physical_cores", "memory_bytes"}.
nlohmann::json MachineToJson();
// [{"threads", "flop_per_second": {"min", "median", "max"}, "read_bytes_per_second": {...}}].
nlohmann::json ToJson(absl::Span<const Ceilings> ceilings);
// [{"kernel", "what", "threads", "seconds": {...}, "flop_per_second", "bytes_per_second", "bound", "share", ...}].
nlohmann::json ToJson(absl::Span<const OperatorResult> results);
// [{"model", "contexts": [{"context", "rows", ..., "times": [{"threads", "tokens_per_second", ...}]}], "exponents"}].
nlohmann::json ToJson(absl::Span<const ModelResult> results, absl::Span<const Ceilings> ceilings);

}  // namespace kvm

#endif  // KVM_TOOLS_REPORT_BENCH_REPORT_H_
