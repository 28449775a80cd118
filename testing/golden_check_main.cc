// Compares models with golden numbers:
//
//   golden_check [flags] FOLDER...
//
// A folder holds a model or a single layer (golden_check.h, golden_layer_check.h). Prints a table for each. Exit
// status: 0 everything within tolerance; 1 something is not, or a folder could not be checked; 2 wrong usage.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "testing/golden_check.h"

ABSL_FLAG(double, logits, 1e-4, "Largest error of a logit that passes.");
ABSL_FLAG(double, hidden, 1e-4, "Largest error of the residual stream that passes.");
ABSL_FLAG(double, state, 1e-4, "Largest error of the state that passes, relative to a tensor's largest entry.");
ABSL_FLAG(double, loss, 1e-5, "Largest error of the loss that passes.");
ABSL_FLAG(double, layer, 2e-5, "Largest error of a single layer's outputs and state that passes.");
ABSL_FLAG(int, threads, 2, "Threads to compute with.");
ABSL_FLAG(std::string, weights, "as-is", "Matrices in memory: as-is, f32 or bf16.");
ABSL_FLAG(std::string, state_dtype, "f32", "Readout rows and windows in memory: f32, bf16 or int8.");

namespace {

bool ParseModelOptions(kvm::ModelOptions* options) {
  const std::string weights = absl::GetFlag(FLAGS_weights), state = absl::GetFlag(FLAGS_state_dtype);
  if (weights == "as-is") {
    options->weights = kvm::WeightType::kAsStored;
  } else if (weights == "f32") {
    options->weights = kvm::WeightType::kF32;
  } else if (weights == "bf16") {
    options->weights = kvm::WeightType::kBF16;
  } else {
    std::fprintf(stderr, "--weights: got \"%s\", expected as-is, f32 or bf16\n", weights.c_str());
    return false;
  }
  if (state == "f32") {
    options->state = kvm::DType::kF32;
  } else if (state == "bf16") {
    options->state = kvm::DType::kBF16;
  } else if (state == "int8") {
    options->state = kvm::DType::kI8;
  } else {
    std::fprintf(stderr, "--state_dtype: got \"%s\", expected f32, bf16 or int8\n", state.c_str());
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("golden_check [flags] FOLDER...: compares models with golden numbers");
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  // `bazel run` starts programs elsewhere; paths are meant from where the user is.
  if (const char* folder = std::getenv("BUILD_WORKING_DIRECTORY"); folder != nullptr && chdir(folder) != 0) {
    std::fprintf(stderr, "golden_check: cannot enter %s\n", folder);
    return 1;
  }
  kvm::GoldenOptions options;
  options.logits_tolerance = absl::GetFlag(FLAGS_logits);
  options.hidden_tolerance = absl::GetFlag(FLAGS_hidden);
  options.state_tolerance = absl::GetFlag(FLAGS_state);
  options.loss_tolerance = absl::GetFlag(FLAGS_loss);
  options.layer_tolerance = absl::GetFlag(FLAGS_layer);
  options.num_threads = absl::GetFlag(FLAGS_threads);
  if (!ParseModelOptions(&options.model)) return 2;
  if (options.num_threads < 1) {
    std::fprintf(stderr, "--threads: got %d, expected at least 1\n", options.num_threads);
    return 2;
  }
  if (arguments.size() < 2) {
    std::fprintf(stderr, "golden_check: expected golden folders as arguments\n");
    return 2;
  }

  int failures = 0;
  for (size_t i = 1; i < arguments.size(); ++i) {
    const absl::StatusOr<kvm::GoldenReport> report = kvm::CheckGolden(arguments[i], options);
    if (!report.ok()) {
      std::printf("%s: FAIL\n  %s\n", arguments[i], std::string(report.status().message()).c_str());
    } else {
      std::fputs(kvm::FormatReport(*report).c_str(), stdout);
    }
    failures += !report.ok() || !report->passed();
  }
  std::printf("%d of %zu folders passed\n", static_cast<int>(arguments.size()) - 1 - failures, arguments.size() - 1);
  return failures == 0 ? 0 : 1;
}
