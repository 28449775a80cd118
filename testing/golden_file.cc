#include "testing/golden_file.h"

#include <cstring>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/base/status_macros.h"

namespace kvm {

std::vector<int64_t> ReadInts(const TensorView& tensor) {
  std::vector<int64_t> values(tensor.num_elements());
  if (!values.empty()) std::memcpy(values.data(), tensor.data, tensor.byte_size());
  return values;
}

absl::StatusOr<GoldenFile> GoldenFile::Open(const std::string& path) {
  GoldenFile golden;
  ASSIGN_OR_RETURN(golden.file_, SafetensorsFile::Open(path));
  const auto error = [&](auto... what) { return absl::InvalidArgumentError(absl::StrCat(path, ": ", what...)); };

  const TensorView* const ids = golden.file_->Find("input_ids");
  if (ids == nullptr || ids->dtype != DType::kI64 || ids->shape.size() != 2 || ids->num_elements() == 0) {
    return error("input_ids: expected I64 of shape [B, T]");
  }
  const std::vector<int64_t> values = ReadInts(golden.Use("input_ids"));
  const int64_t batch = golden.batch_ = ids->shape[0], length = golden.length_ = ids->shape[1];
  for (int64_t b = 0; b < batch; ++b) {
    golden.tokens_.emplace_back();
    for (int64_t t = 0; t < length; ++t) {
      const int64_t id = values[b * length + t];
      if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
        return error("input_ids[", b, ", ", t, "] is ", id, ", expected a token id");
      }
      golden.tokens_.back().push_back(static_cast<int32_t>(id));
    }
  }

  RETURN_IF_ERROR(golden.ReadPrefillLength());
  return golden;
}

absl::StatusOr<GoldenFile> GoldenFile::OpenLayer(const std::string& path, int64_t width) {
  GoldenFile golden;
  ASSIGN_OR_RETURN(golden.file_, SafetensorsFile::Open(path));
  const TensorView* const x = golden.file_->Find("x");
  if (x == nullptr || x->dtype != DType::kF32 || x->shape.size() != 3 || x->shape[2] != width ||
      x->num_elements() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": x: expected F32 of shape [B, T, ", width, "]"));
  }
  golden.batch_ = x->shape[0];
  golden.length_ = x->shape[1];
  golden.x_ = ReadFloats(golden.Use("x"));
  RETURN_IF_ERROR(golden.ReadPrefillLength());
  return golden;
}

absl::Status GoldenFile::ReadPrefillLength() {
  ASSIGN_OR_RETURN(const std::vector<int64_t> prefill, Ints("prefill_len", {}));
  prefill_len_ = prefill[0];
  if (prefill_len_ >= 1 && prefill_len_ < length_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file_->Description(), ": prefill_len is ", prefill_len_, ", expected 1 to ", length_ - 1));
}

absl::StatusOr<const TensorView*> GoldenFile::Expect(const std::string& name, DType dtype, const Shape& shape) {
  const TensorView* const tensor = file_->Find(name);
  if (tensor == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(file_->Description(), ": ", name, ": missing"));
  }
  if (tensor->dtype != dtype || tensor->shape != shape) {
    return absl::InvalidArgumentError(absl::StrCat(file_->Description(), ": ", name, ": got ", Name(tensor->dtype), " ",
                                                   ToString(tensor->shape), ", expected ", Name(dtype), " ",
                                                   ToString(shape)));
  }
  used_.insert(name);
  return tensor;
}

absl::StatusOr<std::vector<float>> GoldenFile::Floats(const std::string& name, const Shape& shape) {
  ASSIGN_OR_RETURN(const TensorView* const tensor, Expect(name, DType::kF32, shape));
  return ReadFloats(*tensor);
}

absl::StatusOr<std::vector<int64_t>> GoldenFile::Ints(const std::string& name, const Shape& shape) {
  ASSIGN_OR_RETURN(const TensorView* const tensor, Expect(name, DType::kI64, shape));
  return ReadInts(*tensor);
}

const TensorView& GoldenFile::Use(const std::string& name) {
  used_.insert(name);
  return *file_->Find(name);
}

absl::Status GoldenFile::CheckAllUsed() const {
  std::vector<std::string> unused;
  for (const std::string& name : Names()) {
    if (used_.count(name) == 0 && !absl::StartsWith(name, "grad.")) unused.push_back(name);
  }
  if (unused.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file_->Description(), ": nothing here corresponds to these tensors: ", absl::StrJoin(unused, ", ")));
}

}  // namespace kvm
