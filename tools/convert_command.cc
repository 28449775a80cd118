#include "tools/convert_command.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kvm/base/file/path_check.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/model_file.h"
#include "kvm/io/model_writer.h"
#include "tools/cli/flag_set.h"
#include "tools/cli/format.h"
#include "tools/cli/output_paths.h"
#include "tools/flags/dtype_flag.h"
#include "tools/flags/model_flags.h"
#include "tools/flags/tokenizer_flags.h"
#include "tools/report/tensor_report.h"

namespace kvm {
namespace {

struct ConvertFlags {
  std::string dtype = "as-is";
  std::string shard_size = "5GB";
  std::string to;
  bool force = false;
};

// The form that a name asks for.
std::string FormOf(const std::string& out) {
  if (absl::EndsWithIgnoreCase(out, ".safetensors")) return "safetensors";
  if (absl::EndsWithIgnoreCase(out, ".pth")) return "pth";
  if (absl::EndsWithIgnoreCase(out, ".kvm")) return "packed";
  return "hf";
}

absl::Status Write(const std::string& form, const std::string& out, const ModelFolder& model,
                   const ModelWriteOptions& options) {
  if (form == "safetensors") return WriteModelSafetensors(out, model.spec, *model.weights, options);
  if (form == "pth") return WriteModelRwkv(out, model.spec, *model.weights, options);
  if (form == "packed") return WriteModelPacked(out, model.spec, *model.weights, options);
  if (form == "folder") return WriteModelFolder(out, model.spec, *model.weights, FolderForm::kStack, options);
  return WriteModelFolder(out, model.spec, *model.weights, FolderForm::kHuggingFace, options);
}

absl::Status RunConvert(absl::Span<const std::string> args, Console& console) {
  FlagSet flags(
      "convert", "IN OUT [--to=FORM] [--dtype=as-is|f32|bf16|f16|int8] [--shard-size=5GB]",
      "Writes the model IN as OUT in another form. IN is whatever --model takes. The form of OUT is told by its\n"
      "name: .pth, .safetensors, .kvm (packed), or else a Hugging Face folder; --to overrides that. Tensors keep\n"
      "every bit unless --dtype says otherwise. OUT must not lie in the folder IN, nor exist,\n"
      "but for a file that --force replaces.");
  ConvertFlags values;
  std::vector<std::string> positionals;
  flags.Positionals(&positionals);
  flags.Choice("dtype", &values.dtype, {"as-is", "f32", "bf16", "f16", "int8"},
               "of the weights in OUT; int8, with scales, for packed models alone");
  flags.String("shard-size", &values.shard_size, "BYTES",
               "the most that a folder's file of weights holds: 5GB, 2GiB, ...");
  flags.Choice("to", &values.to, {"hf", "folder", "safetensors", "pth", "packed"},
               "form of OUT: Hugging Face folder, our own folder, or one file");
  DefineForceFlag(flags, &values.force);
  RETURN_IF_ERROR(flags.Parse(args));
  if (positionals.size() != 2) return flags.Wrong("expected IN and OUT");
  const std::string& out = positionals[1];
  const std::optional<int64_t> shard_bytes = ParseByteSize(values.shard_size);
  if (!shard_bytes.has_value()) {
    return flags.Wrong(absl::StrCat("--shard-size=", values.shard_size, ": expected ", kByteSizes));
  }
  const std::string form = values.to.empty() ? FormOf(out) : values.to;
  const bool is_file = form != "hf" && form != "folder";
  if (values.force && !is_file) return flags.Wrong("--force replaces files; remove a folder to write it anew");
  ASSIGN_OR_RETURN(const OpenedModel opened, OpenModelWithNotes(positionals[0], console));
  RETURN_IF_ERROR(CheckOutsideModel(out, opened.model.path));
  if (is_file) {
    for (const std::string& file : FilesOfModel(positionals[0])) {
      if (!IsSameFile(out, file)) continue;
      return absl::InvalidArgumentError(absl::StrCat(out, " is a file of the model that it is made from, ",
                                                     positionals[0], "; expected another one"));
    }
    if (NameExists(out)) RETURN_IF_ERROR(CheckOutput(out, OutputKind::kModel, values.force));
  }
  NoteBrokenTokenizer(opened.model.tokenizer_path, console);
  ModelWriteOptions options;
  options.cancelled = console.interrupted;
  options.replace = values.force;
  options.dtype = ParseDTypeFlag(values.dtype);
  options.max_shard_bytes = *shard_bytes;
  options.config = opened.model.config;
  options.end_tokens = opened.model.end_tokens;
  options.tokenizer_path = opened.model.tokenizer_path;
  const absl::Status status = Write(form, out, opened.model, options);
  if (!status.ok() && form == "hf" && absl::StrContains(status.message(), "config.json cannot express")) {
    return absl::Status(status.code(), absl::StrCat(out, ": ", status.message(), "; --to=folder can hold it"));
  }
  RETURN_IF_ERROR(status);
  console.out << Name(opened.kind) << " " << positionals[0] << " -> " << out << " (" << form
              << "): " << SummarizeTensors(*opened.model.weights)
              << (options.dtype.has_value() ? " as " + values.dtype : "") << "\n";
  return absl::OkStatus();
}

}  // namespace

Command ConvertCommand() { return {"convert", "writes a model in another form", RunConvert}; }

}  // namespace kvm
