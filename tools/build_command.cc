#include "tools/build_command.h"

#include <limits>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kvm/io/byte_level_bpe.h"
#include "kvm/io/model_folder.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/model/initializer.h"
#include "kvm/model/parameters.h"
#include "kvm/model/stack_spec.h"
#include "kvm/status_macros.h"
#include "tools/command_status.h"
#include "tools/flag_set.h"
#include "tools/format.h"
#include "tools/machine.h"
#include "tools/model_flags.h"
#include "tools/output_paths.h"
#include "tools/stack_flags.h"
#include "tools/stack_report.h"

namespace kvm {
namespace {

struct BuildFlags {
  StackFlags stack;
  ModelFlags model;  // of which --threads, --state and --seed are used
  std::string tokenizer;
  std::string dtype = "f32";
  std::string out;
  double block_output_gain = 0;
  bool print_spec = false;
  bool json = false;
};

void DefineFlags(FlagSet& flags, BuildFlags* values) {
  DefineStackFlags(flags, &values->stack);
  flags.String("tokenizer", &values->tokenizer, "FILE", "tokenizer.json to copy into the folder");
  flags.Choice("dtype", &values->dtype, {"f32", "bf16"}, "of the weights in the file");
  flags.Int64("seed", &values->model.seed, 0, std::numeric_limits<int64_t>::max(), "of the weights");
  flags.ReadFromEnvironment("seed", "KVM_SEED");
  flags.Double("block-output-gain", &values->block_output_gain, 0, 1000,
               "of projections out of a block; 0, the published recipe, makes every new layer pass its input on");
  flags.Int64("threads", &values->model.threads, 1, 1024, "threads to compute with");
  flags.ReadFromEnvironment("threads", "KVM_THREADS");
  flags.String("out", &values->out, "DIR", "folder for the model; without it nothing is written");
  flags.Choice("state", &values->model.state, {"f32", "bf16"}, "of the states whose sizes are shown");
  flags.Bool("print-spec", &values->print_spec, "print the stack as .textproto and nothing else");
  flags.Bool("json", &values->json, "print as JSON");
}

// Finds out before the long work begins what WriteModelFolder would refuse after it.
absl::Status CheckFree(const std::string& folder) {
  if (absl::IsNotFound(OpenModelFolder(folder).status())) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(folder, ": something is here already; expected a new folder, or one without a model"));
}

absl::Status CheckTokenizer(const std::string& path, const StackSpec& spec) {
  if (path.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadByteLevelBpe(path));
  if (tokenizer->vocab_size() <= spec.vocab_size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", tokenizer->vocab_size(),
                                                 " tokens, and the stack's vocabulary has ", spec.vocab_size(),
                                                 "; expected at least as many there (--vocab)"));
}

absl::Status WriteModel(const BuildFlags& values, const StackSpec& spec, Console& console) {
  const int64_t bytes = NumParameters(spec) * static_cast<int64_t>(sizeof(float));
  RETURN_IF_ERROR(CheckFitsInMemory("the new weights", static_cast<double>(bytes), "choose a smaller stack"));
  console.err << "drawing " << FormatBytes(bytes) << " of weights with seed " << values.model.seed << std::endl;
  ThreadPool pool(static_cast<int>(values.model.threads));
  InitializerOptions options;
  options.seed = static_cast<uint64_t>(values.model.seed);
  options.block_output_gain = values.block_output_gain;
  options.cancelled = console.interrupted;
  const std::unique_ptr<WeightSource> weights = InitializeWeights(spec, options, pool);
  if (weights == nullptr) return Interrupted();
  RETURN_IF_ERROR(WriteModelFolder(values.out, spec, *weights, values.dtype == "bf16" ? DType::kBF16 : DType::kF32,
                                   values.tokenizer));
  console.err << "wrote " << values.out << std::endl;
  return absl::OkStatus();
}

absl::Status RunBuild(absl::Span<const std::string> args, Console& console) {
  FlagSet flags("build", "(--spec=FILE | --pattern=RRRK [--layers=N ...]) [--out=DIR]",
                "Assembles a stack, prints what it is and what a sequence costs, and writes it as a model folder with\n"
                "new weights. The defaults are those of the published 120M models.");
  BuildFlags values;
  DefineFlags(flags, &values);
  RETURN_IF_ERROR(flags.Parse(args));
  ASSIGN_OR_RETURN(const StackSpec spec, ResolveStack(flags, values.stack));
  RETURN_IF_ERROR(CheckTokenizer(values.tokenizer, spec));
  const DType state = values.model.state == "bf16" ? DType::kBF16 : DType::kF32;
  if (!values.out.empty()) {
    RETURN_IF_ERROR(CheckFree(values.out));
    RETURN_IF_ERROR(CheckCanMakeFolder(values.out));
    RETURN_IF_ERROR(WriteModel(values, spec, console));
  }

  if (values.print_spec) {
    console.out << FormatStackSpec(spec);
  } else if (values.json) {
    console.out << StackToJson(spec, state).dump(2) << "\n";
  } else {
    console.out << DescribeStack(spec) << "\nbytes of one sequence, state " << values.model.state << ":\n"
                << StateSizeTable(spec, state);
  }
  return absl::OkStatus();
}

}  // namespace

Command BuildCommand() { return {"build", "assembles a stack and writes a model folder", RunBuild}; }

}  // namespace kvm
