#include "testing/reference_model/reference_engine.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/kernels/tensor.h"
#include "kvm/state/copy_on_write.h"
#include "testing/reference_model/reference_model.h"

namespace kvm {
namespace {

// Small and odd, so that most batches are cut.
constexpr int64_t kMaxPassRows = 7;
constexpr size_t kMaxMemories = 4096;

class CopiedWeights : public WeightSource {
 public:
  explicit CopiedWeights(const WeightSource& source) : description_(source.Description()) {
    for (const std::string& name : source.Names()) {
      const HeldTensor held = source.Read(name);
      Tensor& copy = tensors_[name] = Tensor(DType::kF32, held.view.shape);
      const std::vector<float> values = ReadFloats(held.view);
      std::copy(values.begin(), values.end(), static_cast<float*>(copy.bytes()));
      views_[name] = copy.view();
    }
  }

  std::string Description() const override { return description_; }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& entry : views_) names.push_back(entry.first);
    return names;
  }
  const TensorView* Find(absl::string_view name) const override {
    const auto found = views_.find(name);
    return found == views_.end() ? nullptr : &found->second;
  }
  int64_t ByteSize() const {
    int64_t bytes = 0;
    for (const auto& entry : tensors_) bytes += entry.second.byte_size();
    return bytes;
  }

 private:
  std::string description_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, TensorView, std::less<>> views_;
};

// All tokens of a sequence in its first layer.
class ReferenceLayerState : public LayerState {
 public:
  ReferenceLayerState(bool is_first, int64_t vocab_size) : vocab_size_(vocab_size) {
    if (is_first) tokens_ = CopyOnWrite<std::vector<int32_t>>(std::make_unique<std::vector<int32_t>>());
  }

  std::unique_ptr<LayerState> Clone() const override { return std::make_unique<ReferenceLayerState>(*this); }
  void Unshare() override {
    if (tokens_) tokens_.Mutable();
  }
  int64_t ByteSize() const override { return tokens_ ? static_cast<int64_t>(tokens_->size() * sizeof(int32_t)) : 0; }
  absl::Status Save(const StateWriter& out) const override {
    if (tokens_) out.Tensor("tokens", DType::kI32, {static_cast<int64_t>(tokens_->size())}, tokens_->data());
    return absl::OkStatus();
  }
  absl::Status Restore(const StateReader& in, int64_t position) override {
    if (tokens_) {
      ASSIGN_OR_RETURN(tokens_.Mutable(), in.Ints("tokens", position, 0, vocab_size_ - 1));
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<NamedTensor>> Export() const override {
    std::vector<NamedTensor> tensors;
    if (tokens_) {
      const std::vector<int64_t> ids(tokens_->begin(), tokens_->end());
      tensors.push_back({"tokens", Tensor::FromInts({static_cast<int64_t>(ids.size())}, ids)});
    }
    return tensors;
  }

  std::vector<int32_t>& tokens() { return tokens_.Mutable(); }

 private:
  int64_t vocab_size_;
  CopyOnWrite<std::vector<int32_t>> tokens_;
};

// What a pass may ask for of a sequence: the rows of its last tokens, kMaxPassRows of them or all.
struct LastRows {
  int64_t count = 0;
  std::vector<float> logits;               // [count, vocab_size]
  std::vector<std::vector<float>> hidden;  // of every layer [count, width]
};

std::vector<float> Rounded(const reference::Rows& rows, int64_t count) {
  std::vector<float> values;
  for (auto row = rows.end() - count; row != rows.end(); ++row) values.insert(values.end(), row->begin(), row->end());
  return values;
}

class ReferenceEngine : public Engine {
 public:
  ReferenceEngine(const StackPlan& plan, const WeightSource& weights) : spec_(plan.spec), weights_(weights) {}

  absl::string_view arithmetic() const override { return "reference"; }
  int64_t max_pass_rows() const override { return kMaxPassRows; }

  SequenceState NewSequence() const override {
    std::vector<std::unique_ptr<LayerState>> layers;
    for (int i = 0; i < spec_.layers_size(); ++i) {
      layers.push_back(std::make_unique<ReferenceLayerState>(i == 0, spec_.vocab_size()));
    }
    return SequenceState(/*stack_id=*/0, std::move(layers));
  }

  absl::Status Prepare(absl::Span<const PassRows> pass, ExecutionContext&) const override {
    for (const PassRows& share : pass) share.sequence->Unshare();
    return absl::OkStatus();
  }

  absl::Status Forward(absl::Span<const PassRows> pass, const PassObserver* observer,
                       ExecutionContext&) const override {
    for (size_t s = 0; s < pass.size(); ++s) {
      const PassRows& share = pass[s];
      std::vector<int32_t>& tokens =
          static_cast<ReferenceLayerState&>(SequenceAccess::Layer(*share.sequence, 0)).tokens();
      tokens.insert(tokens.end(), share.tokens.begin(), share.tokens.end());
      const std::shared_ptr<const LastRows> rows = Compute(tokens);
      for (int64_t r = 0; r < share.logits.rows; ++r) {
        const int64_t row = rows->count - share.logits.rows + r;
        std::copy_n(rows->logits.data() + row * spec_.vocab_size(), spec_.vocab_size(), share.logits.row(r));
      }
      if (observer == nullptr) continue;
      const int64_t first = rows->count - share.num_tokens();
      for (int64_t layer = 0; layer < spec_.layers_size(); ++layer) {
        (*observer)(layer, static_cast<int64_t>(s),
                    MatrixView<const float>(rows->hidden[layer].data() + first * spec_.width(), share.num_tokens(),
                                            spec_.width()));
      }
    }
    return absl::OkStatus();
  }

  int64_t WeightByteSize() const override { return weights_.ByteSize(); }
  int64_t StepWeightByteSize() const override { return weights_.ByteSize(); }
  StateSize SizeOf(int64_t context_length) const override {
    return {0, static_cast<int64_t>(sizeof(int32_t)) * context_length};
  }

 private:
  // Depends on nothing but the tokens, so that it need not be computed twice.
  std::shared_ptr<const LastRows> Compute(const std::vector<int32_t>& tokens) const {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = memories_.find(tokens);
      if (found != memories_.end()) return found->second;
    }
    const reference::ModelRun run = reference::RunModel(spec_, weights_, tokens);
    auto rows = std::make_shared<LastRows>();
    rows->count = std::min(kMaxPassRows, static_cast<int64_t>(tokens.size()));
    rows->logits = Rounded(run.logits, rows->count);
    for (const reference::Rows& hidden : run.hidden) rows->hidden.push_back(Rounded(hidden, rows->count));
    const std::lock_guard<std::mutex> lock(mutex_);
    if (memories_.size() >= kMaxMemories) memories_.clear();
    memories_[tokens] = rows;
    return rows;
  }

  StackSpec spec_;
  CopiedWeights weights_;  // float32: what the reference model reads into double precision
  mutable std::mutex mutex_;
  mutable std::map<std::vector<int32_t>, std::shared_ptr<const LastRows>> memories_;  // guarded by mutex_
};

absl::Status CheckKnown(const StackSpec& spec, const ModelOptions& options) {
  const auto unknown = [](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("the reference engine does not know ", what));
  };
  if (options.weights != WeightType::kAsStored && options.weights != WeightType::kF32) {
    return unknown("weights of another type; expected as they are stored, or float32");
  }
  if (options.state != DType::kF32) return unknown(absl::StrCat("states of ", Name(options.state), "; expected F32"));
  if (options.chunked_recurrences) return unknown("chunked_recurrences; expected none");
  if (options.provenance) return unknown("provenance; expected none");
  for (const MixerSpec& mixer : spec.mixers()) {
    if (!mixer.has_kvm()) continue;
    const KvmSpec& kvm = mixer.kvm();
    const std::string in = absl::StrCat(" in mixer \"", mixer.name(), "\"; expected none");
    if (kvm.head_budgets_size() > 0) return unknown("head_budgets" + in);
    if (kvm.has_second_merge()) return unknown("second_merge" + in);
    if (kvm.merge_decay() != 1) return unknown("merge_decay" + in);
    if (kvm.separate_rotary()) return unknown("separate_rotary" + in);
    if (!std::isinf(kvm.budget().append_below())) return unknown("append_below" + in);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> NewReferenceEngine(const StackPlan& plan, const WeightSource& weights,
                                                           const ModelOptions& options) {
  RETURN_IF_ERROR(CheckKnown(plan.spec, options));
  return std::make_unique<ReferenceEngine>(plan, weights);
}

}  // namespace kvm
