// How long it takes until a model of the published 120M shape is ready, from a packed file and from safetensors, and
// how much memory of its own ("anonymous": not shared with other processes through the file) that takes.

#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "benchmark/benchmark.h"
#include "glog/logging.h"
#include "kvm/io/model_file.h"
#include "kvm/io/model_writer.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/parameters.h"

namespace kvm {
namespace {

constexpr char kSpec[] = R"(
  mixers {
    name: "kvm"
    kvm {
      projections { num_heads: 6 rotary_dim: 64 token_shift: true }
      budget { growth: POWER_LAW factor: 16 min_rows: 256 max_chunks: 10000 }
    }
  }
  mlp_token_shift: true
  )";

StackSpec Spec120M() {
  std::string text = kSpec;
  for (int i = 0; i < 12; ++i) absl::StrAppend(&text, "layers: \"kvm\" ");
  const absl::StatusOr<StackSpec> spec = ParseStackSpec(text, "benchmark");
  CHECK(spec.ok()) << spec.status();
  return *spec;
}

// Every element 0.01.
class ConstantWeights : public WeightSource {
 public:
  explicit ConstantWeights(const StackSpec& spec) {
    for (const Parameter& parameter : StackParameters(spec)) {
      Tensor tensor(DType::kF32, parameter.shape);
      for (float& value : tensor.floats()) value = 0.01f;
      views_[parameter.name] = tensor.view();
      tensors_.push_back(std::move(tensor));
    }
  }
  std::string Description() const override { return "constant weights"; }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& entry : views_) names.push_back(entry.first);
    return names;
  }
  const TensorView* Find(absl::string_view name) const override {
    const auto found = views_.find(name);
    return found == views_.end() ? nullptr : &found->second;
  }

 private:
  std::vector<Tensor> tensors_;
  std::map<std::string, TensorView, std::less<>> views_;
};

// Bytes of this process that no file backs.
double AnonymousBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!absl::StartsWith(line, "RssAnon:")) continue;
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    double kibibytes = 0;
    CHECK(absl::SimpleAtod(words[1], &kibibytes)) << line;
    return kibibytes * 1024;
  }
  return 0;
}

// A model file that goes away with this.
class TemporaryModel {
 public:
  TemporaryModel(DType dtype, bool packed)
      : path_((std::filesystem::temp_directory_path() / absl::StrCat("kvm_benchmark_", packed, ".model")).string()) {
    std::filesystem::remove(path_);
    const StackSpec spec = Spec120M();
    ModelWriteOptions options;
    options.dtype = dtype;
    const ConstantWeights weights(spec);
    const absl::Status status =
        packed ? WriteModelPacked(path_, spec, weights, options) : WriteModelSafetensors(path_, spec, weights, options);
    CHECK(status.ok()) << status;
  }
  ~TemporaryModel() { std::filesystem::remove(path_); }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void BM_Load(benchmark::State& state, DType dtype, bool packed) {
  const TemporaryModel file(dtype, packed);
  double anonymous = 0, weights = 0;
  for (auto _ : state) {
    state.PauseTiming();
    malloc_trim(0);  // what earlier models left would hide what this one takes
    const double before = AnonymousBytes();
    state.ResumeTiming();
    absl::StatusOr<OpenedModel> opened = OpenModel(file.path());
    CHECK(opened.ok()) << opened.status();
    absl::StatusOr<std::unique_ptr<LanguageModel>> model =
        LanguageModel::Create(opened->model.spec, *opened->model.weights, {});
    CHECK(model.ok()) << model.status();
    anonymous = std::max(anonymous, AnonymousBytes() - before);
    weights = static_cast<double>((*model)->WeightByteSize());
  }
  state.counters["anonymous_bytes"] = anonymous;
  state.counters["weight_bytes"] = weights;
}
BENCHMARK_CAPTURE(BM_Load, packed_f32, DType::kF32, true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Load, packed_bf16, DType::kBF16, true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Load, packed_int8, DType::kI8, true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Load, safetensors_f32, DType::kF32, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Load, safetensors_bf16, DType::kBF16, false)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvm
