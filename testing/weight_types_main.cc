// The perplexity of a model on a text with its weights as float32, bfloat16 and int8:
//
//   bazel run //testing:weight_types -- --model=FOLDER --text=FILE [--max_tokens=20000] [--window=1025]
//
// Tokens are those of the model's tokenizer, bytes where it has none.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/model_file.h"
#include "kvm/io/tokenizer/open_tokenizer.h"
#include "kvm/io/tokenizer/tokenizer.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack/model_options.h"
#include "testing/text_loss.h"

ABSL_FLAG(std::string, model, "", "what OpenModel takes");
ABSL_FLAG(std::string, text, "", "UTF-8 text");
ABSL_FLAG(int64_t, max_tokens, 20000, "how much of the text is used");
ABSL_FLAG(int64_t, window, 1025, "tokens of a sequence");
ABSL_FLAG(int32_t, threads, 2, "threads to compute with");

namespace kvm {
namespace {

absl::StatusOr<std::vector<int32_t>> Tokens(const std::string& tokenizer_path, const std::string& text_path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(text_path));
  if (tokenizer_path.empty()) return ByteTokens(text);
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, OpenTokenizer(tokenizer_path));
  return tokenizer->Encode(text);
}

absl::Status Report() {
  ASSIGN_OR_RETURN(const OpenedModel opened, OpenModel(absl::GetFlag(FLAGS_model)));
  ASSIGN_OR_RETURN(std::vector<int32_t> tokens, Tokens(opened.model.tokenizer_path, absl::GetFlag(FLAGS_text)));
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(absl::GetFlag(FLAGS_max_tokens))));
  ExecutionContext context(absl::GetFlag(FLAGS_threads));
  const std::pair<const char*, WeightType> types[] = {
      {"f32", WeightType::kF32}, {"bf16", WeightType::kBF16}, {"int8", WeightType::kI8}};
  double first = 0;
  for (const auto& [name, type] : types) {
    ModelOptions options;
    options.weights = type;
    ASSIGN_OR_RETURN(const std::unique_ptr<LanguageModel> model,
                     LanguageModel::Create(opened.model.spec, *opened.model.weights, options));
    ASSIGN_OR_RETURN(const double loss, MeanLoss(*model, tokens, absl::GetFlag(FLAGS_window), context));
    const double perplexity = std::exp(loss);
    if (first == 0) first = perplexity;
    std::printf("%-4s  %8.1f MiB  loss %.6f  perplexity %.5f  (%+.4f %%)\n", name,
                static_cast<double>(model->WeightByteSize()) / (1 << 20), loss, perplexity,
                100 * (perplexity / first - 1));
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace kvm

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  // `bazel run` starts programs elsewhere; paths are meant from where the user is.
  if (const char* folder = std::getenv("BUILD_WORKING_DIRECTORY"); folder != nullptr && chdir(folder) != 0) return 1;
  if (absl::GetFlag(FLAGS_window) < 2 || absl::GetFlag(FLAGS_max_tokens) < 0 || absl::GetFlag(FLAGS_threads) < 1) {
    std::fprintf(stderr, "weight_types: expected --window >= 2, --max_tokens >= 0 and --threads >= 1\n");
    return 2;
  }
  const absl::Status status = kvm::Report();
  if (status.ok()) return 0;
  std::fprintf(stderr, "weight_types: %s\n", std::string(status.message()).c_str());
  return 1;
}
