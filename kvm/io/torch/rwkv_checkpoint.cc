#include "kvm/io/torch/rwkv_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/torch/rwkv_names.h"
#include "kvm/io/torch/torch_file.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/parameters.h"
#include "kvm/model/weights/tensor_problems.h"

namespace kvm {
namespace {

constexpr char kMixer[] = "rwkv7";
constexpr char kBlocks[] = "blocks.";
constexpr char kEmbedding[] = "transformer.wte.weight";
constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int64_t kMlpGrain = 32;

absl::Status Broken(const WeightSource& file, const std::string& problems) {
  for (const std::string& name : file.Names()) {
    if (absl::StartsWith(name, "blocks.0.att.time_")) {
      return absl::InvalidArgumentError(absl::StrCat(
          file.Description(), ": a checkpoint of RWKV before version 7 (it has ", name, "), expected RWKV-7 (x070)"));
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(file.Description(), ": no RWKV-7 (x070) checkpoint: ", problems));
}

// The widths of a checkpoint, read from the shapes of a few tensors.
class SizeReader {
 public:
  explicit SizeReader(const WeightSource& file) : file_(file) {}

  // The extents of a tensor that must be a matrix with extents a stack can have; {0, 0} and a problem otherwise.
  std::pair<int32_t, int32_t> Matrix(const std::string& name, const std::string& expected) {
    const TensorView* tensor = file_.Find(name);
    if (tensor == nullptr) {
      problems_.push_back(absl::StrCat(name, ": missing, expected shape ", expected));
      return {0, 0};
    }
    const auto fits = [](int64_t extent) { return extent >= 1 && extent <= kMaxSize; };
    if (tensor->shape.size() != 2 || !fits(tensor->shape[0]) || !fits(tensor->shape[1])) {
      problems_.push_back(absl::StrCat(name, ": has shape ", ToString(tensor->shape), ", expected ", expected));
      return {0, 0};
    }
    return {static_cast<int32_t>(tensor->shape[0]), static_cast<int32_t>(tensor->shape[1])};
  }

  // The number of blocks, which must be numbered from 0 without a gap.
  int Blocks() {
    std::set<int> blocks;
    for (const std::string& name : file_.Names()) {
      const std::optional<LayerName> split = SplitLayerName(name, kBlocks);
      if (split.has_value()) blocks.insert(split->layer);
    }
    int next = 0;
    for (const int block : blocks) {
      if (block != next++) {
        problems_.push_back(absl::StrCat("blocks.", next - 1, ": missing, although there is blocks.", block));
        return 0;
      }
    }
    if (blocks.empty()) problems_.push_back("blocks.0: missing");
    return static_cast<int>(blocks.size());
  }

  void Expect(bool condition, const std::string& problem) {
    if (!condition) problems_.push_back(problem);
  }

  const std::vector<std::string>& problems() const { return problems_; }

 private:
  const WeightSource& file_;
  std::vector<std::string> problems_;
};

// The expansion that makes the MLP of a stack `width` wide.
double ExpansionOf(StackSpec spec, int64_t width) {
  double expansion = static_cast<double>(width) / spec.width();
  spec.set_mlp_expansion(expansion);
  // width/D·D may fall a bit short of width.
  while (MlpWidth(spec) < width) {
    expansion = std::nextafter(expansion, std::numeric_limits<double>::infinity());
    spec.set_mlp_expansion(expansion);
  }
  return expansion;
}

absl::StatusOr<StackSpec> ReadSpec(const WeightSource& file) {
  SizeReader sizes(file);
  const int layers = sizes.Blocks();
  const auto [vocab, width] = sizes.Matrix("emb.weight", "[vocabulary, width]");
  const auto [heads, head_size] = sizes.Matrix("blocks.0.att.r_k", "[heads, head size]");
  const int32_t decay_rank = sizes.Matrix("blocks.0.att.w1", "[width, rank]").second;
  const int32_t rate_rank = sizes.Matrix("blocks.0.att.a1", "[width, rank]").second;
  const int32_t gate_rank = sizes.Matrix("blocks.0.att.g1", "[width, rank]").second;
  const int32_t mlp_width = sizes.Matrix("blocks.0.ffn.key.weight", "[MLP width, width]").first;
  sizes.Expect(mlp_width % kMlpGrain == 0, absl::StrCat("blocks.0.ffn.key.weight: makes an MLP ", mlp_width,
                                                        " wide, expected a multiple of ", kMlpGrain));
  sizes.Expect(width == 0 || heads == 0 || int64_t{heads} * head_size == width,
               absl::StrCat("blocks.0.att.r_k: has ", heads, " heads of ", head_size, ", expected ", width,
                            " channels together, as in emb.weight"));
  // Block 0 need not have a value gate.
  int32_t value_rank = 0;
  const std::string value_gate = absl::StrCat("blocks.", layers > 1 ? 1 : 0, ".att.v1");
  if (layers > 1 || file.Find(value_gate) != nullptr) value_rank = sizes.Matrix(value_gate, "[width, rank]").second;
  if (!sizes.problems().empty()) return Broken(file, absl::StrJoin(sizes.problems(), "; "));

  StackSpec spec;
  spec.set_vocab_size(vocab);
  spec.set_width(width);
  spec.set_mlp_token_shift(true);
  MixerSpec& mixer = *spec.add_mixers();
  mixer.set_name(kMixer);
  mixer.mutable_rwkv7()->set_num_heads(heads);
  mixer.mutable_rwkv7()->set_decay_rank(decay_rank);
  mixer.mutable_rwkv7()->set_in_context_rate_rank(rate_rank);
  mixer.mutable_rwkv7()->set_gate_rank(gate_rank);
  if (value_rank > 0) mixer.mutable_rwkv7()->set_value_rank(value_rank);
  for (int i = 0; i < layers; ++i) spec.add_layers(kMixer);
  spec.set_mlp_expansion(ExpansionOf(spec, mlp_width));
  const absl::Status valid = ValidateStack(spec);
  if (!valid.ok()) return Broken(file, std::string(valid.message()));
  return spec;
}

// Whether the file has exactly the tensors of the stack; that of block 0's value gate only if it has any of them.
absl::Status CheckTensors(const StackSpec& spec, const WeightSource& file, bool has_first_gate) {
  TensorProblems problems(kBlocks);
  std::set<std::string> known;
  ForEachParameter(spec, [&](const Parameter& parameter) {
    const RwkvName official = ToRwkvName(parameter.name);
    const std::optional<TensorInfo> tensor = file.Info(official.name);
    if (tensor.has_value()) known.insert(official.name);
    if (IsUnusedValueGate(official.name) && !has_first_gate) return;
    const std::string problem = ProblemOf(tensor, official.transposed ? Transposed(parameter.shape) : parameter.shape);
    if (!problem.empty()) problems.Add(official.name, problem);
  });
  for (const std::string& name : file.Names()) {
    if (known.count(name) == 0) problems.Add(name, "unexpected");
  }
  return problems.empty() ? absl::OkStatus() : Broken(file, problems.Join());
}

// Where in a tensor's name that of an RWKV checkpoint begins, as far as no other model has such names; npos without
// one.
size_t FindRwkvName(absl::string_view name) {
  for (const char* part : {"blocks.0.att.", "blocks.0.ffn.", "blocks.0.ln0."}) {
    const size_t begin = name.find(part);
    if (begin == 0 || (begin != absl::string_view::npos && name[begin - 1] == '.')) return begin;
  }
  return absl::string_view::npos;
}

class RwkvWeights : public WeightSource {
 public:
  explicit RwkvWeights(std::shared_ptr<const WeightSource> file) : memory_(std::make_shared<OwnedMemory>()) {
    memory_->file = std::move(file);
  }

  void Show(const std::string& name, const TensorView& view) { tensors_[name] = view; }
  void Keep(const std::string& name, Tensor tensor) {
    memory_->tensors.push_back(std::move(tensor));
    tensors_[name] = memory_->tensors.back().view();
  }

  std::string Description() const override { return memory_->file->Description(); }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& entry : tensors_) names.push_back(entry.first);
    return names;
  }
  std::string NameInFile(absl::string_view name) const override { return ToRwkvName(name).name; }
  const TensorView* Find(absl::string_view name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  std::shared_ptr<const void> Memory() const override { return memory_; }
  absl::Status CheckContents(const std::function<bool()>& cancelled) const override {
    return memory_->file->CheckContents(cancelled);
  }

 private:
  struct OwnedMemory {
    std::shared_ptr<const WeightSource> file;
    std::vector<Tensor> tensors;  // moving one leaves its bytes in place
  };
  std::shared_ptr<OwnedMemory> memory_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

// Why official checkpoints cannot hold a stack.
std::vector<std::string> Obstacles(const StackSpec& spec) {
  std::vector<std::string> problems;
  const std::set<std::string> used(spec.layers().begin(), spec.layers().end());
  for (int i = 0; i < spec.mixers_size(); ++i) {
    const MixerSpec& mixer = spec.mixers(i);
    if (used.count(mixer.name()) == 0) continue;
    const std::string path = absl::StrCat("mixers[", i, "]");
    if (!mixer.has_rwkv7()) {
      problems.push_back(absl::StrCat(path, ": \"", mixer.name(), "\" is no RWKV-7 mixer"));
    } else if (!mixer.rwkv7().token_shift()) {
      problems.push_back(absl::StrCat(path, ".rwkv7.token_shift: got false, expected true"));
    }
  }
  if (used.size() > 1) {
    problems.push_back(absl::StrCat("layers: use ", used.size(), " mixers, expected one in all layers"));
  }
  if (!spec.mlp_token_shift()) problems.push_back("mlp_token_shift: got false, expected true");
  if (spec.block_lambdas()) problems.push_back("block_lambdas: got true, expected false");
  if (spec.skip_connections()) problems.push_back("skip_connections: got true, expected false");
  if (spec.residual_scale() != 1) {
    problems.push_back(absl::StrCat("residual_scale: got ", spec.residual_scale(), ", expected 1"));
  }
  if (spec.logit_softcap() != 0) {
    problems.push_back(absl::StrCat("logit_softcap: got ", spec.logit_softcap(), ", expected 0"));
  }
  return problems;
}

bool IsAllZero(const TensorView& tensor) {
  const std::vector<float> values = ReadFloats(tensor);
  return std::all_of(values.begin(), values.end(), [](float x) { return x == 0 && !std::signbit(x); });
}

}  // namespace

bool HasRwkvNames(const WeightSource& file) {
  const std::vector<std::string> names = file.Names();
  return std::any_of(names.begin(), names.end(), [](const std::string& name) { return FindRwkvName(name) == 0; });
}

std::string DescribeForeignNames(const WeightSource& file) {
  const std::vector<std::string> names = file.Names();
  if (names.empty()) return "it has no tensors";
  for (const std::string& name : names) {
    const size_t begin = FindRwkvName(name);
    if (begin == absl::string_view::npos) continue;
    return absl::StrCat("its tensors are named as those of RWKV-7, but with ", Quoted(name.substr(0, begin)),
                        " before that (", Printable(name), "); expected ", Printable(name.substr(begin)));
  }
  return absl::StrCat("its tensors are not named as those of RWKV-7 (", Printable(names[0]),
                      names.size() > 1 ? ", ..." : "", ")");
}

absl::StatusOr<RwkvCheckpoint> ReadRwkvCheckpoint(std::shared_ptr<const WeightSource> file) {
  ASSIGN_OR_RETURN(StackSpec spec, ReadSpec(*file));
  const std::vector<std::string> names = file->Names();
  const bool has_first_gate = std::any_of(names.begin(), names.end(), IsUnusedValueGate);
  // Before anything is allocated, so that all sizes are those of tensors that are there.
  RETURN_IF_ERROR(CheckTensors(spec, *file, has_first_gate));
  // Invented tensors are like those beside them.
  const DType dtype = file->Find("blocks.0.att.a0")->dtype;
  auto weights = std::make_unique<RwkvWeights>(file);
  ForEachParameter(spec, [&](const Parameter& parameter) {
    const RwkvName official = ToRwkvName(parameter.name);
    if (IsUnusedValueGate(official.name) && !has_first_gate) {
      weights->Keep(parameter.name, Tensor(dtype, parameter.shape));
    } else if (official.transposed) {
      weights->Keep(parameter.name, Transposed(*file->Find(official.name)));
    } else {
      weights->Show(parameter.name, *file->Find(official.name));
    }
  });
  return RwkvCheckpoint{std::move(spec), std::move(weights)};
}

absl::Status WriteRwkvCheckpoint(const std::string& path, const StackSpec& spec, const WeightSource& weights,
                                 const TensorWriting& writing) {
  RETURN_IF_ERROR(ValidateStack(spec));
  const std::vector<std::string> obstacles = Obstacles(spec);
  if (!obstacles.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": an official RWKV-7 checkpoint cannot hold this stack: ", absl::StrJoin(obstacles, "; ")));
  }
  RETURN_IF_ERROR(CheckWeights(spec, weights));
  const std::vector<Parameter> parameters = StackParameters(spec);
  const bool has_first_gate = std::any_of(parameters.begin(), parameters.end(), [&](const Parameter& parameter) {
    return IsUnusedValueGate(ToRwkvName(parameter.name).name) && !IsAllZero(weights.Read(parameter.name).view);
  });
  std::vector<std::string> ours;
  for (const Parameter& parameter : parameters) ours.push_back(parameter.name);
  const TensorStream source = StreamWeights(weights, ours, writing);
  TensorStream stream;
  stream.cancelled = writing.cancelled;
  std::map<std::string, std::string> names;  // ours by the official ones
  for (const TensorStream::Entry& entry : source.tensors) {
    const RwkvName official = ToRwkvName(entry.name);
    if (IsUnusedValueGate(official.name) && !has_first_gate) continue;
    names[official.name] = entry.name;
    const Shape& shape = entry.info.shape;
    stream.tensors.push_back({official.name, {entry.info.dtype, official.transposed ? Transposed(shape) : shape}});
  }
  if (spec.tied_head()) {
    names["head.weight"] = kEmbedding;
    const TensorInfo info = *weights.Info(kEmbedding);
    stream.tensors.push_back({"head.weight", {writing.dtype.value_or(info.dtype), info.shape}});
  }
  stream.read = [&](const std::string& name) -> absl::StatusOr<HeldTensor> {
    const std::string& our_name = names.at(name);
    ASSIGN_OR_RETURN(HeldTensor tensor, source.read(our_name));
    if (!ToRwkvName(our_name).transposed) return tensor;
    Tensor transposed = Transposed(tensor.view);
    const TensorView view = transposed.view();
    return HeldTensor{view, std::move(transposed)};
  };
  return WriteTorchStream(path, stream);
}

}  // namespace kvm
