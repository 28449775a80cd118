#include "tools/bench_command.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/bench/ceiling_meter.h"
#include "kvm/bench/cold_memory.h"
#include "kvm/bench/context_bench.h"
#include "kvm/bench/machine_ceilings.h"
#include "kvm/bench/operator_bench.h"
#include "nlohmann/json.hpp"
#include "tools/bench_flags.h"
#include "tools/cli/command_status.h"
#include "tools/cli/format.h"
#include "tools/cli/machine.h"
#include "tools/cli/progress.h"
#include "tools/report/bench_report.h"

namespace kvm {
namespace {

// What measuring asks of a console and tells it.
BenchHooks HooksOf(Console& console) {
  struct Line {
    std::string what;
    std::unique_ptr<Progress> progress;
  };
  auto line = std::make_shared<Line>();
  BenchHooks hooks;
  hooks.cancelled = console.interrupted;
  hooks.progress = [line, &console](const std::string& what, const std::string& unit, int64_t done, int64_t total) {
    if (line->progress == nullptr || line->what != what) {
      line->progress = std::make_unique<Progress>(console, what, unit, total);
      line->what = what;
    }
    line->progress->Update(done);
    if (done == total) line->progress.reset();
  };
  return hooks;
}

// A measurement that was stopped was so by Ctrl-C.
template <typename T>
absl::StatusOr<T> OrInterrupted(absl::StatusOr<T> result) {
  if (absl::IsCancelled(result.status())) return Interrupted();
  return result;
}

// A run of the command: threads to measure with, and where results go.
struct Bench {
  const FlagSet& flags;
  const BenchFlags& values;
  std::vector<ExecutionContext*> contexts;  // fewest threads first
  std::vector<ThreadPool*> pools;
  Console& console;
  nlohmann::json json;

  // Tables are printed as they come.
  void Print(const std::string& table) const {
    if (!values.json) console.out << table << std::flush;
  }
};

// Takes some samples of all ceilings.
void SampleCeilings(const Bench& bench, CeilingMeter& meter) {
  for (int64_t round = 0; round < bench.values.rounds && !bench.console.interrupted(); ++round) meter.Sample();
}

absl::Status RunOperators(Bench& bench) {
  ASSIGN_OR_RETURN(const OperatorBenchOptions options, ResolveOperatorBench(bench.flags, bench.values));
  ASSIGN_OR_RETURN(const OperatorReport report,
                   OrInterrupted(BenchOperators(options, bench.pools, HooksOf(bench.console))));
  bench.Print(CeilingTable(report.ceilings) + OperatorTable(report.results));
  bench.json["operators"] = {{"ceilings", ToJson(report.ceilings)}, {"results", ToJson(report.results)}};
  return absl::OkStatus();
}

absl::Status RunContexts(Bench& bench) {
  const ContextBenchOptions options = ResolveContextBench(bench.values);
  ASSIGN_OR_RETURN(const BenchModels models, LoadContextModels(bench.flags, bench.values, options.contexts.back(),
                                                               *bench.contexts.back(), bench.console));
  const ColdMemory memory(bench.values.memory_mib << 20);
  CeilingMeter meter(bench.pools, &memory);
  // Before and behind, as the machine may do other work meanwhile.
  SampleCeilings(bench, meter);
  ASSIGN_OR_RETURN(const std::vector<ModelResult> results,
                   OrInterrupted(BenchContexts(models.models, options, bench.contexts, HooksOf(bench.console))));
  SampleCeilings(bench, meter);
  const std::vector<Ceilings> ceilings = meter.Summary();
  bench.Print(CeilingTable(ceilings));
  for (const ModelResult& result : results) {
    if (bench.values.Asks("prefill")) bench.Print(PrefillTable(result, ceilings));
    if (bench.values.Asks("decode")) bench.Print(DecodeTable(result, ceilings));
  }
  bench.json["contexts"] = {{"ceilings", ToJson(ceilings)}, {"results", ToJson(results, ceilings)}};
  return absl::OkStatus();
}

absl::Status RunState(Bench& bench) {
  std::vector<Ceilings> ceilings;
  {
    // Gone before memory is looked at.
    const ColdMemory memory(bench.values.memory_mib << 20);
    CeilingMeter meter({bench.pools.back()}, &memory);
    meter.Sample();
    SampleCeilings(bench, meter);
    ceilings = meter.Summary();
  }
  const ContextBenchOptions options = ResolveStateBench(bench.values);
  ASSIGN_OR_RETURN(const BenchModels models,
                   LoadStateModels(bench.flags, bench.values, *bench.contexts.back(), bench.console));
  ASSIGN_OR_RETURN(const std::vector<ModelResult> results,
                   OrInterrupted(BenchContexts(models.models, options,
                                               absl::MakeConstSpan(bench.contexts).subspan(bench.contexts.size() - 1),
                                               HooksOf(bench.console))));
  bench.Print(CeilingTable(ceilings) + StateTable(results, models.WeightByteSize()));
  bench.json["state"] = {{"ceilings", ToJson(ceilings)},
                         {"weight_bytes", models.WeightByteSize()},
                         {"results", ToJson(results, ceilings)}};
  return absl::OkStatus();
}

absl::Status RunBench(absl::Span<const std::string> args, Console& console) {
  FlagSet flags(
      "bench", "[operators] [prefill] [decode] [state]",
      "Measured rates beside what this machine can do at most, which is measured as well; medians over rounds\n"
      "that take everything in turn. operators: kernels at a layer's sizes (--width --heads --vocab --chunk\n"
      "--mlp-expansion --rows). prefill, decode: --model, or the stack of --spec or --pattern with random\n"
      "weights (without any: the published 120M KVM-sqrt shape); --weights may be a list. state: how time and\n"
      "memory grow to --tokens, with a fixed budget and with one of 16*context^0.5 rows, or with --budget (of\n"
      "at least 256 rows where it is sqrt or power); a stack of 4 layers and width 512 unless flags say more.\n"
      "Without a topic: operators, prefill and decode.");
  BenchFlags values;
  DefineBenchFlags(flags, &values);
  RETURN_IF_ERROR(flags.Parse(args));
  const AbandonableStep measuring(console);
  RETURN_IF_ERROR(CheckBenchFlags(flags, &values));

  std::vector<std::unique_ptr<ExecutionContext>> owned;
  Bench bench{flags, values, {}, {}, console, {{"machine", MachineToJson()}}};
  for (const int64_t threads : values.threads) {
    auto context = std::make_unique<ExecutionContext>(static_cast<int>(threads));
    NoteThreads(flags, threads, context->pool, console);
    // The system may grant no more threads than one before had.
    if (!bench.pools.empty() && context->pool.num_threads() == bench.pools.back()->num_threads()) continue;
    bench.contexts.push_back(context.get());
    bench.pools.push_back(&context->pool);
    owned.push_back(std::move(context));
  }
  bench.Print(absl::StrCat(ProcessorName(), ", ", InstructionSet(), ", ",
                           FormatCounted(NumPhysicalCores(), "physical core"), ", ", FormatBytes(PhysicalMemory()),
                           "; medians of ", FormatCounted(values.rounds, "round"), "\n\n"));
  if (values.Asks("operators")) RETURN_IF_ERROR(RunOperators(bench));
  if (values.Asks("prefill") || values.Asks("decode")) RETURN_IF_ERROR(RunContexts(bench));
  if (values.Asks("state")) RETURN_IF_ERROR(RunState(bench));
  if (values.json) console.out << bench.json.dump(2) << "\n";
  return absl::OkStatus();
}

}  // namespace

Command BenchCommand() { return {"bench", "measures kernels and models beside this machine's ceilings", RunBench}; }

}  // namespace kvm
