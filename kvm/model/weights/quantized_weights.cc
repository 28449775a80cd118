#include "kvm/model/weights/quantized_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kvm/base/status_macros.h"
#include "kvm/kernels/cpu/matmul.h"
#include "kvm/kernels/int8_panels.h"
#include "kvm/kernels/tensor.h"

namespace kvm {
namespace {

// Smaller matrices than width/kSmallPart in one direction stay floats.
constexpr int64_t kSmallPart = 8;

struct Int8Matrix {
  PackedMatrix panels;
  // The numbers it stands for, made on demand.
  Tensor rows;
  TensorView view;
};

struct Contents {
  std::map<std::string, Int8Matrix, std::less<>> matrices;
  // Copies of the other tensors, when the source's memory does not last; the source's memory when it does.
  std::map<std::string, Tensor, std::less<>> copies;
  std::map<std::string, TensorView, std::less<>> others;
  std::shared_ptr<const void> memory;
  std::mutex mutex;  // guards Int8Matrix::rows and Int8Matrix::view
};

Tensor FloatRows(const PanelsView& panels) {
  Tensor rows(DType::kF32, {panels.outputs, panels.inputs});
  for (int64_t o = 0; o < panels.outputs; ++o) {
    CopyInt8Row(panels, o, rows.floats().subspan(o * panels.inputs, panels.inputs));
  }
  return rows;
}

class QuantizedWeights : public WeightSource {
 public:
  QuantizedWeights(const WeightSource& source, std::shared_ptr<Contents> contents)
      : source_(source), contents_(std::move(contents)) {}

  std::string Description() const override { return source_.Description(); }
  std::vector<std::string> Names() const override { return source_.Names(); }

  const TensorView* Find(absl::string_view name) const override {
    const auto found = contents_->matrices.find(name);
    if (found == contents_->matrices.end()) {
      const auto other = contents_->others.find(name);
      return other == contents_->others.end() ? nullptr : &other->second;
    }
    Int8Matrix& matrix = found->second;
    const std::lock_guard<std::mutex> lock(contents_->mutex);
    if (matrix.view.data == nullptr) {
      matrix.rows = FloatRows(matrix.panels.view());
      matrix.view = matrix.rows.view();
    }
    return &matrix.view;
  }

  std::optional<TensorInfo> Info(absl::string_view name) const override {
    const auto found = contents_->matrices.find(name);
    if (found == contents_->matrices.end()) return source_.Info(name);
    const PanelsView& panels = found->second.panels.view();
    return TensorInfo{DType::kF32, {panels.outputs, panels.inputs}};
  }

  const PanelsView* FindPanels(absl::string_view name) const override {
    const auto found = contents_->matrices.find(name);
    return found == contents_->matrices.end() ? nullptr : &found->second.panels.view();
  }

  std::shared_ptr<const void> Memory() const override { return contents_; }

 private:
  const WeightSource& source_;
  std::shared_ptr<Contents> contents_;
};

absl::Status CheckFinite(const TensorView& tensor, absl::string_view where) {
  // Row by row, as the whole would be a second copy of the largest matrix.
  const int64_t rows = tensor.shape[0], width = tensor.shape[1];
  for (int64_t r = 0; r < rows; ++r) {
    const auto* const data = static_cast<const unsigned char*>(tensor.data) + r * width * SizeOf(tensor.dtype);
    for (const float value : ReadFloats({tensor.dtype, {width}, data})) {
      if (std::isfinite(value)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": ", value, " in row ", r, "; int8 weights need finite numbers"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool BecomesInt8(const StackSpec& spec, absl::string_view name, const TensorInfo& info) {
  return info.shape.size() == 2 && absl::EndsWith(name, ".weight") &&
         std::min(info.shape[0], info.shape[1]) * kSmallPart >= spec.width();
}

absl::StatusOr<std::unique_ptr<WeightSource>> QuantizeWeights(const StackSpec& spec, const WeightSource& source) {
  auto contents = std::make_shared<Contents>();
  contents->memory = source.Memory();
  for (const std::string& name : source.Names()) {
    const PanelsView* const panels = source.FindPanels(name);
    if (panels != nullptr && panels->storage == DType::kI8 && contents->memory != nullptr) {
      contents->matrices[name].panels = PackedMatrix::Borrow(*panels);
      continue;
    }
    const TensorView& tensor = *source.Find(name);
    if (BecomesInt8(spec, name, {tensor.dtype, tensor.shape})) {
      RETURN_IF_ERROR(CheckFinite(tensor, absl::StrCat(source.Description(), ": ", name)));
      contents->matrices[name].panels = PackedMatrix::Pack(tensor, DType::kI8);
      continue;
    }
    TensorView& other = contents->others[name];
    other = tensor;
    if (contents->memory != nullptr) continue;
    Tensor& copy = contents->copies[name];
    copy = Tensor(tensor.dtype, tensor.shape);
    if (copy.byte_size() > 0) std::memcpy(copy.bytes(), tensor.data, static_cast<size_t>(copy.byte_size()));
    other.data = copy.bytes();
  }
  return std::unique_ptr<WeightSource>(std::make_unique<QuantizedWeights>(source, std::move(contents)));
}

}  // namespace kvm
