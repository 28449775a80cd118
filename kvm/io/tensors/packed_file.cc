#include "kvm/io/tensors/packed_file.h"

#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kvm/base/file/content_hash.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tensors/cast.h"
#include "kvm/io/tensors/packed.pb.h"
#include "kvm/io/tensors/packed_layout.h"
#include "kvm/io/tensors/tensor_stream.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/int8_panels.h"
#include "kvm/kernels/panels_view.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/weights/parameters.h"

namespace kvm {
namespace {

// Element (output, input) of panels of type T.
template <typename T>
T PanelElement(const PanelsView& panels, int64_t output, int64_t input) {
  const int64_t panel = output / kPanelOutputs;
  return static_cast<const T*>(panels.data)[(panel * panels.inputs + input) * kPanelOutputs + output % kPanelOutputs];
}

// What Find() gives for elements that the file has as `dtype`.
DType RowDType(DType dtype) { return dtype == DType::kI8 ? DType::kF32 : dtype; }

// The matrix as it was before it was packed: row-major, to the bit; or the numbers that int8 stands for.
Tensor Unpack(const PanelsView& panels, DType dtype) {
  Tensor rows(RowDType(dtype), {panels.outputs, panels.inputs});
  if (dtype == DType::kI8) {
    for (int64_t o = 0; o < panels.outputs; ++o) {
      CopyInt8Row(panels, o, rows.floats().subspan(o * panels.inputs, panels.inputs));
    }
    return rows;
  }
  int64_t at = 0;
  for (int64_t o = 0; o < panels.outputs; ++o) {
    for (int64_t i = 0; i < panels.inputs; ++i, ++at) {
      if (dtype == DType::kBF16) {
        static_cast<BFloat16*>(rows.bytes())[at] = PanelElement<BFloat16>(panels, o, i);
      } else if (dtype == DType::kF16) {
        static_cast<uint16_t*>(rows.bytes())[at] = ToHalf(PanelElement<float>(panels, o, i));
      } else {
        static_cast<float*>(rows.bytes())[at] = PanelElement<float>(panels, o, i);
      }
    }
  }
  return rows;
}

struct Matrix {
  PanelsView panels;
  DType dtype = DType::kF32;
  // Made on demand.
  Tensor rows;
  TensorView view;
};

// The mapped file and what was made of it: shared by the source and the models that use its memory.
struct Contents {
  explicit Contents(MappedFile file) : file(std::move(file)) {}

  MappedFile file;
  StackSpec spec;
  uint64_t fingerprint = 0;  // as the header states it
  SpecForm fingerprint_form = SpecForm::kCanonical;
  std::map<std::string, TensorView, std::less<>> rows;
  std::map<std::string, Matrix, std::less<>> matrices;
  std::mutex mutex;  // guards Matrix::rows and Matrix::view
};

class PackedWeights : public WeightSource {
 public:
  explicit PackedWeights(std::shared_ptr<Contents> contents) : contents_(std::move(contents)) {}

  std::string Description() const override { return contents_->file.path(); }

  std::vector<std::string> Names() const override {
    std::map<std::string, bool> names;  // sorted; a tied embedding is there in both layouts
    for (const auto& entry : contents_->rows) names[entry.first] = true;
    for (const auto& entry : contents_->matrices) names[entry.first] = true;
    std::vector<std::string> sorted;
    for (const auto& entry : names) sorted.push_back(entry.first);
    return sorted;
  }

  const TensorView* Find(absl::string_view name) const override {
    const auto row = contents_->rows.find(name);
    if (row != contents_->rows.end()) return &row->second;
    const auto found = contents_->matrices.find(name);
    if (found == contents_->matrices.end()) return nullptr;
    Matrix& matrix = found->second;
    const std::lock_guard<std::mutex> lock(contents_->mutex);
    if (matrix.view.data == nullptr) {
      matrix.rows = Unpack(matrix.panels, matrix.dtype);
      matrix.view = matrix.rows.view();
    }
    return &matrix.view;
  }

  std::optional<TensorInfo> Info(absl::string_view name) const override {
    const auto row = contents_->rows.find(name);
    if (row != contents_->rows.end()) return TensorInfo{row->second.dtype, row->second.shape};
    const auto found = contents_->matrices.find(name);
    if (found == contents_->matrices.end()) return std::nullopt;
    const Matrix& matrix = found->second;
    return TensorInfo{RowDType(matrix.dtype), {matrix.panels.outputs, matrix.panels.inputs}};
  }

  HeldTensor Read(absl::string_view name) const override {
    const auto row = contents_->rows.find(name);
    if (row != contents_->rows.end()) return {row->second, Tensor()};
    const Matrix& matrix = contents_->matrices.find(name)->second;
    Tensor rows = Unpack(matrix.panels, matrix.dtype);
    const TensorView view = rows.view();
    return {view, std::move(rows)};
  }

  absl::Status CheckContents(const std::function<bool()>& cancelled) const override {
    const TensorStream tensors = StreamWeights(*this, Names(), {std::nullopt, cancelled});
    ASSIGN_OR_RETURN(const uint64_t fingerprint,
                     ModelFingerprint(contents_->spec, tensors, contents_->fingerprint_form));
    if (fingerprint == contents_->fingerprint) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(
        Description(), ": the weights are not those that the header's fingerprint speaks of; the file is damaged"));
  }

  const PanelsView* FindPanels(absl::string_view name) const override {
    const auto found = contents_->matrices.find(name);
    return found == contents_->matrices.end() ? nullptr : &found->second.panels;
  }

  std::shared_ptr<const void> Memory() const override { return contents_; }

 private:
  std::shared_ptr<Contents> contents_;
};

}  // namespace

absl::StatusOr<PackedModel> OpenPackedModel(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  const absl::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  uint64_t data_begin = 0;
  ASSIGN_OR_RETURN(PackedHeader header, ParsePackedHeader(bytes, path, &data_begin));

  auto contents = std::make_shared<Contents>(std::move(file));
  for (const PackedTensor& tensor : header.tensors()) {
    ASSIGN_OR_RETURN(const PackedSize size, SizeOfPacked(tensor, path));
    const void* const data = bytes.data() + data_begin + tensor.offset();
    if (tensor.layout() == PackedTensor::ROWS) {
      contents->rows[tensor.name()] = {size.dtype, size.shape, data};
    } else {
      Matrix& matrix = contents->matrices[tensor.name()];
      matrix.panels = {PanelStorage(size.dtype), size.shape[0], size.shape[1], data};
      matrix.dtype = size.dtype;
    }
  }
  for (const auto& [name, matrix] : contents->matrices) {
    const auto row = contents->rows.find(name);
    if (row == contents->rows.end()) continue;
    if (row->second.dtype == matrix.dtype && row->second.shape == Shape{matrix.panels.outputs, matrix.panels.inputs}) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", name, " is two tensors, as rows and as panels"));
  }
  PackedModel model;
  contents->spec = header.spec();
  contents->fingerprint_form = FingerprintForm(header.version());
  contents->fingerprint = model.fingerprint = header.fingerprint();
  for (const PackedConfigField& field : header.config()) model.config[field.key()] = field.value();
  model.weights = std::make_unique<PackedWeights>(std::move(contents));
  RETURN_IF_ERROR(CheckWeights(header.spec(), *model.weights));
  model.spec = std::move(*header.mutable_spec());
  return model;
}

}  // namespace kvm
