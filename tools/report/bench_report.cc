#include "tools/report/bench_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kvm/bench/machine_ceilings.h"
#include "kvm/bench/power_law.h"
#include "kvm/kernels/thread_pool.h"
#include "tools/cli/format.h"
#include "tools/cli/machine.h"

namespace kvm {
namespace {

using Table = std::vector<std::vector<std::string>>;

constexpr double kGiga = 1e9;

std::string Percent(double share) { return absl::StrFormat("%.0f%%", 100 * share); }
std::string Giga(double rate) { return FormatRate(rate / kGiga); }
std::string FormatExponent(std::optional<double> exponent) {
  return exponent.has_value() ? absl::StrFormat("%.2f", *exponent) : "?";
}
std::string Milliseconds(double seconds) { return absl::StrFormat("%.3g", 1000 * seconds); }

// "1.23 (1.20-1.31)", with whatever makes the numbers from samples.
template <typename Format>
std::string MedianAndRange(const Spread& spread, Format format) {
  return absl::StrCat(format(spread.median), " (", format(spread.min), "-", format(spread.max), ")");
}

// Rates are the higher the fewer seconds.
Spread RatesOf(double amount, const Spread& seconds) {
  return {amount / seconds.max, amount / seconds.median, amount / seconds.min};
}

const char* NameOf(Bound bound) {
  switch (bound) {
    case Bound::kMultiplyAdds:
      return "multiply-adds";
    case Bound::kReads:
      return "reads";
    case Bound::kMatMul:
      break;
  }
  return "matmul";
}

nlohmann::json ToJson(std::optional<double> number) {
  return number.has_value() ? nlohmann::json(*number) : nlohmann::json();
}

nlohmann::json ToJson(const Spread& spread) {
  return {{"min", spread.min}, {"median", spread.median}, {"max", spread.max}};
}

nlohmann::json ToJson(const ContextResult& context, const ThreadTimes& times, const Ceilings& ceilings) {
  const double flop_rate = context.piece_flop / times.piece.median;
  const double token_flop_rate = context.token_flop / times.token.median;
  const double token_read_rate = context.token_bytes / times.token.median;
  return {{"threads", times.threads},
          {"prefill",
           {{"seconds", ToJson(times.piece)},
            {"tokens_per_second", ToJson(RatesOf(static_cast<double>(context.piece_tokens), times.piece))},
            {"flop_per_second", flop_rate},
            {"share_of_multiply_adds", flop_rate / ceilings.flop_rate.median}}},
          {"decode",
           {{"seconds_per_token", ToJson(times.token)},
            {"first_token_seconds", ToJson(times.first_token)},
            {"bytes_per_second", token_read_rate},
            {"share_of_reads", token_read_rate / ceilings.read_rate.median},
            {"flop_per_second", token_flop_rate},
            {"share_of_multiply_adds", token_flop_rate / ceilings.flop_rate.median}}}};
}

}  // namespace

std::string CeilingTable(absl::Span<const Ceilings> ceilings) {
  Table table = {{"ceilings", "GFLOP/s", "GB/s read"}};
  for (const Ceilings& c : ceilings) {
    table.push_back(
        {FormatCounted(c.threads, "thread"), MedianAndRange(c.flop_rate, Giga), MedianAndRange(c.read_rate, Giga)});
  }
  return FormatTable(table) + "\n";
}

std::string OperatorTable(absl::Span<const OperatorResult> results) {
  Table table = {{"kernel", "threads", "ms (min-max)", "GFLOP/s", "GB/s", "share", "of"}};
  std::string notes;
  for (const OperatorResult& result : results) {
    const double seconds = result.seconds.median;
    table.push_back({absl::StrCat(result.kernel, ": ", result.what), absl::StrCat(result.threads),
                     MedianAndRange(result.seconds, Milliseconds), Giga(result.flop / seconds),
                     Giga(result.bytes / seconds), Percent(result.share), NameOf(result.bound)});
    if (result.share_of_attention.has_value()) {
      absl::StrAppend(&notes, result.kernel, " with ", FormatCounted(result.threads, "thread"), ": ",
                      Percent(*result.share_of_attention), " of the time of the same chunk's attention\n");
    }
  }
  return absl::StrCat(FormatTable(table), notes, "\n");
}

std::string PrefillTable(const ModelResult& result, absl::Span<const Ceilings> ceilings) {
  Table table = {{"prefill to", "threads", "tokens/s (min-max)", "MFLOP/token", "GFLOP/s", "of peak", "all so far"}};
  for (const ContextResult& context : result.contexts) {
    for (const ThreadTimes& times : context.times) {
      const double tokens = static_cast<double>(context.piece_tokens);
      const double flop_rate = context.piece_flop / times.piece.median;
      table.push_back({FormatContext(context.context), absl::StrCat(times.threads),
                       MedianAndRange(RatesOf(tokens, times.piece), FormatRate),
                       FormatRate(context.piece_flop / tokens / 1e6), Giga(flop_rate),
                       Percent(flop_rate / CeilingsOf(times.threads, ceilings).flop_rate.median),
                       &times == &context.times.back() ? FormatSeconds(context.read_seconds) : ""});
    }
  }
  return absl::StrCat(result.name, "\n", FormatTable(table), "\n");
}

std::string DecodeTable(const ModelResult& result, absl::Span<const Ceilings> ceilings) {
  Table table = {{"decode at", "threads", "ms/token", "max", "first", "rows", "state", "read/token", "GB/s", "of reads",
                  "GFLOP/s", "of peak"}};
  for (const ContextResult& context : result.contexts) {
    for (const ThreadTimes& times : context.times) {
      const Ceilings& ceiling = CeilingsOf(times.threads, ceilings);
      const double read_rate = context.token_bytes / times.token.median;
      const double flop_rate = context.token_flop / times.token.median;
      table.push_back({FormatContext(context.context), absl::StrCat(times.threads), Milliseconds(times.token.median),
                       Milliseconds(times.token.max), Milliseconds(times.first_token.median), FormatCount(context.rows),
                       FormatBytes(context.state_bytes), FormatBytes(static_cast<int64_t>(context.token_bytes)),
                       Giga(read_rate), Percent(read_rate / ceiling.read_rate.median), Giga(flop_rate),
                       Percent(flop_rate / ceiling.flop_rate.median)});
    }
  }
  return absl::StrCat(result.name, "\n", FormatTable(table), "\n");
}

std::string StateTable(absl::Span<const ModelResult> results, int64_t weight_bytes) {
  std::string text;
  for (const ModelResult& result : results) {
    Table table = {{"context", "rows", "state", "read in", "tokens/s", "ms/token"}};
    for (const ContextResult& context : result.contexts) {
      const ThreadTimes& times = context.times.back();
      table.push_back({FormatContext(context.context), FormatCount(context.rows), FormatBytes(context.state_bytes),
                       FormatSeconds(context.read_seconds),
                       FormatRate(static_cast<double>(context.piece_tokens) / times.piece.median),
                       Milliseconds(times.token.median)});
    }
    const GrowthExponents growth = FitGrowth(result);
    absl::StrAppend(&text, result.name, "\n", FormatTable(table), "time of a piece ~ context^",
                    FormatExponent(growth.piece), ", of all tokens ~ context^", FormatExponent(growth.total), "\n\n");
  }
  if (results.empty()) return text;
  Table table = {{"memory", "weights + states", "resident"}};
  for (size_t i = 0; i < results[0].contexts.size(); ++i) {
    int64_t bytes = weight_bytes;
    for (const ModelResult& result : results) bytes += result.contexts[i].state_bytes;
    const ContextResult& context = results[0].contexts[i];
    table.push_back({FormatContext(context.context), FormatBytes(bytes), FormatBytes(context.resident_bytes)});
  }
  return absl::StrCat(text, FormatTable(table), "\n");
}

GrowthExponents FitGrowth(const ModelResult& result) {
  const double first = result.contexts.empty() ? 0 : static_cast<double>(result.contexts.front().context);
  const auto behind_first = [&](std::vector<XY> points) {
    points.erase(std::remove_if(points.begin(), points.end(), [&](const XY& p) { return p.x < first; }), points.end());
    return points;
  };
  return {FitExponent(behind_first(result.piece_seconds)), FitExponent(behind_first(result.total_seconds))};
}

nlohmann::json MachineToJson() {
  return {{"processor", ProcessorName()},
          {"instruction_set", InstructionSet()},
          {"physical_cores", NumPhysicalCores()},
          {"memory_bytes", PhysicalMemory()}};
}

nlohmann::json ToJson(absl::Span<const Ceilings> ceilings) {
  nlohmann::json json = nlohmann::json::array();
  for (const Ceilings& c : ceilings) {
    json.push_back({{"threads", c.threads},
                    {"flop_per_second", ToJson(c.flop_rate)},
                    {"read_bytes_per_second", ToJson(c.read_rate)}});
  }
  return json;
}

nlohmann::json ToJson(absl::Span<const OperatorResult> results) {
  nlohmann::json json = nlohmann::json::array();
  for (const OperatorResult& result : results) {
    nlohmann::json entry = {{"kernel", result.kernel},
                            {"what", result.what},
                            {"threads", result.threads},
                            {"seconds", ToJson(result.seconds)},
                            {"flop", result.flop},
                            {"bytes", result.bytes},
                            {"flop_per_second", result.flop / result.seconds.median},
                            {"bytes_per_second", result.bytes / result.seconds.median},
                            {"bound", NameOf(result.bound)},
                            {"share", result.share}};
    if (result.share_of_attention.has_value()) entry["share_of_attention"] = *result.share_of_attention;
    json.push_back(entry);
  }
  return json;
}

nlohmann::json ToJson(absl::Span<const ModelResult> results, absl::Span<const Ceilings> ceilings) {
  nlohmann::json json = nlohmann::json::array();
  for (const ModelResult& result : results) {
    nlohmann::json contexts = nlohmann::json::array();
    for (const ContextResult& context : result.contexts) {
      nlohmann::json times = nlohmann::json::array();
      for (const ThreadTimes& t : context.times) {
        times.push_back(ToJson(context, t, CeilingsOf(t.threads, ceilings)));
      }
      contexts.push_back({{"context", context.context},
                          {"piece_tokens", context.piece_tokens},
                          {"read_seconds", context.read_seconds},
                          {"rows", context.rows},
                          {"state_bytes", context.state_bytes},
                          {"resident_bytes", context.resident_bytes},
                          {"flop_per_prompt_token", context.piece_flop / static_cast<double>(context.piece_tokens)},
                          {"flop_per_decoded_token", context.token_flop},
                          {"bytes_per_decoded_token", context.token_bytes},
                          {"times", times}});
    }
    const GrowthExponents growth = FitGrowth(result);
    json.push_back({{"model", result.name},
                    {"contexts", contexts},
                    {"exponents", {{"piece", ToJson(growth.piece)}, {"total", ToJson(growth.total)}}}});
  }
  return json;
}

}  // namespace kvm
