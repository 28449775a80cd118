#include "tools/build_command.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/model_file.h"
#include "kvm/io/model_writer.h"
#include "kvm/io/tokenizer/tokenizer.h"
#include "kvm/kernels/tensor.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/graft.h"
#include "kvm/model/weights/initializer.h"
#include "kvm/model/weights/parameters.h"
#include "tools/cli/command_status.h"
#include "tools/cli/flag_set.h"
#include "tools/cli/format.h"
#include "tools/cli/machine.h"
#include "tools/cli/output_paths.h"
#include "tools/flags/dtype_flag.h"
#include "tools/flags/graft_flags.h"
#include "tools/flags/model_flags.h"
#include "tools/flags/stack_flags.h"
#include "tools/flags/tokenizer_flags.h"
#include "tools/report/stack_report.h"
#include "tools/report/state_report.h"

namespace kvm {
namespace {

struct BuildFlags {
  StackFlags stack;
  GraftFlags graft;
  ModelFlags model;  // of which --threads, --state and --seed are used
  std::string tokenizer;
  std::string dtype = "as-is";
  std::string out;
  double block_output_gain = 0;
  bool print_spec = false;
  bool json = false;
};

void DefineFlags(FlagSet& flags, BuildFlags* values) {
  DefineStackFlags(flags, &values->stack);
  DefineGraftFlags(flags, &values->graft);
  flags.String("tokenizer", &values->tokenizer, "FILE", "tokenizer to copy into the folder; without it that of --base");
  flags.Choice("dtype", &values->dtype, {"as-is", "f32", "bf16", "f16"},
               "of the weights in the file; new ones are f32");
  flags.Int64("seed", &values->model.seed, 0, std::numeric_limits<int64_t>::max(), "of the weights");
  flags.ReadFromEnvironment("seed", "KVM_SEED");
  flags.Double("block-output-gain", &values->block_output_gain, 0, 1000,
               "of projections out of a block; 0, the published recipe, makes every new layer pass its input on");
  flags.Int64("threads", &values->model.threads, 1, 1024, "threads to compute with");
  flags.ReadFromEnvironment("threads", "KVM_THREADS");
  flags.String("out", &values->out, "DIR", "folder for the model; without it nothing is written");
  flags.Choice("state", &values->model.state, StateNames(), "of the states whose sizes are shown");
  flags.Bool("print-spec", &values->print_spec, "print the stack as .textproto and nothing else");
  flags.Bool("json", &values->json, "print as JSON");
}

// Finds out before the long work begins what WriteModelFolder would refuse after it.
absl::Status CheckFree(const std::string& folder) {
  if (absl::IsNotFound(OpenModel(folder).status())) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(folder, ": something is here already; expected a new folder, or one without a model"));
}

absl::Status CheckTokenizer(const std::string& path, const StackSpec& spec, Console& console) {
  if (path.empty()) return absl::OkStatus();
  const AbandonableStep opening(console);
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, OpenTokenizerWithNotes(path, console));
  if (tokenizer->vocab_size() <= spec.vocab_size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", tokenizer->vocab_size(),
                                                 " tokens, and the stack's vocabulary has ", spec.vocab_size(),
                                                 "; expected at least as many there (--vocab)"));
}

// Bytes of the parameters that are to be drawn.
int64_t NewBytes(const Composition& composition) {
  int64_t elements = 0;
  for (const Parameter& parameter : StackParameters(composition.spec)) {
    if (composition.plan.origins.count(parameter.name) == 0) elements += NumElements(parameter.shape);
  }
  return elements * static_cast<int64_t>(sizeof(float));
}

// How the report calls what is drawn.
std::string NewOrigin(const BuildFlags& values) { return absl::StrCat("new (seed ", values.model.seed, ")"); }

absl::Status WriteModel(const FlagSet& flags, const BuildFlags& values, const Composition& composition,
                        Console& console) {
  const int64_t bytes = NewBytes(composition);
  RETURN_IF_ERROR(CheckFitsInMemory("the new weights", static_cast<double>(bytes), "choose a smaller stack"));
  if (bytes > 0) {
    console.err << "drawing " << FormatBytes(bytes) << " of weights with seed " << values.model.seed << std::endl;
  }
  ThreadPool pool(static_cast<int>(values.model.threads));
  NoteThreads(flags, values.model.threads, pool, console);
  InitializerOptions options;
  options.seed = static_cast<uint64_t>(values.model.seed);
  options.block_output_gain = values.block_output_gain;
  options.wanted = [&](absl::string_view name) { return composition.plan.origins.count(name) == 0; };
  options.cancelled = console.interrupted;
  const std::unique_ptr<WeightSource> fresh = InitializeWeights(composition.spec, options, pool);
  if (fresh == nullptr) return Interrupted();
  const std::unique_ptr<WeightSource> weights = GraftWeights(composition.spec, composition.plan, *fresh);
  ModelWriteOptions write;
  write.dtype = ParseDTypeFlag(values.dtype);
  write.cancelled = console.interrupted;
  if (!values.graft.base.empty()) write.end_tokens = composition.checkpoints[0]->model.end_tokens;
  write.tokenizer_path = values.tokenizer.empty() ? composition.tokenizer_path : values.tokenizer;
  RETURN_IF_ERROR(WriteModelFolder(values.out, composition.spec, *weights, FolderForm::kStack, write));
  console.err << "wrote " << values.out << std::endl;
  return absl::OkStatus();
}

std::string OriginTable(const BuildFlags& values, const Composition& composition) {
  std::string text;
  const std::vector<GraftLine> lines = DescribeGrafts(composition.spec, composition.plan, NewOrigin(values));
  size_t width = 0;
  for (const GraftLine& line : lines) width = std::max(width, line.part.size());
  for (const GraftLine& line : lines) {
    absl::StrAppend(&text, line.part, std::string(width - line.part.size(), ' '), "  ", line.origin, "\n");
  }
  return text;
}

absl::Status RunBuild(absl::Span<const std::string> args, Console& console) {
  FlagSet flags(
      "build", "(--spec=FILE | --pattern=RRRK [--layers=N ...] | --base=MODEL) [--graft=PART=MODEL ...] [--out=DIR]",
      "Assembles a stack, prints what it is and what a sequence costs, and writes it as a model folder with\n"
      "new weights. The defaults are those of the published 120M models.\n"
      "\n"
      "--base starts from a model and keeps all its weights bit for bit. --replace gives layers a new mixer and\n"
      "leaves their norms and MLPs. --graft takes parts from other models, layer i from layer i: whole layers\n"
      "with norms and MLPs, or mixer:LAYERS alone; with --base they bring their mixer along, with --spec and\n"
      "--pattern the stack must have the same one. Later grafts override earlier ones.");
  BuildFlags values;
  DefineFlags(flags, &values);
  RETURN_IF_ERROR(flags.Parse(args));
  ASSIGN_OR_RETURN(const Composition composition, ComposeStack(flags, values.stack, values.graft, console));
  const StackSpec& spec = composition.spec;
  RETURN_IF_ERROR(CheckTokenizer(values.tokenizer, spec, console));
  if (values.tokenizer.empty() && !values.out.empty()) NoteBrokenTokenizer(composition.tokenizer_path, console);
  const DType state = StateDType(values.model.state);
  if (!values.out.empty()) {
    RETURN_IF_ERROR(CheckFree(values.out));
    for (const std::unique_ptr<OpenedModel>& checkpoint : composition.checkpoints) {
      RETURN_IF_ERROR(CheckOutsideModel(values.out, checkpoint->model.path));
    }
    RETURN_IF_ERROR(CheckCanMakeFolder(values.out));
    RETURN_IF_ERROR(WriteModel(flags, values, composition, console));
  }

  if (values.print_spec) {
    console.out << FormatStackSpec(spec);
  } else if (values.json) {
    nlohmann::json json = StackToJson(spec, state);
    for (const GraftLine& line : DescribeGrafts(spec, composition.plan, NewOrigin(values))) {
      json["origins"].push_back({{"part", line.part}, {"origin", line.origin}});
    }
    console.out << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else {
    console.out << DescribeStack(spec);
    if (!composition.checkpoints.empty()) console.out << "\n" << OriginTable(values, composition);
    console.out << "\nbytes of one sequence, state " << values.model.state << ":\n"
                << StateSizeTable(spec, state) << "\n"
                << StateGrowthTable(spec, state);
  }
  return absl::OkStatus();
}

}  // namespace

Command BuildCommand() { return {"build", "assembles a stack and writes a model folder", RunBuild}; }

}  // namespace kvm
