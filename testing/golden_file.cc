#include "testing/golden_file.h"

#include <cstring>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/status_macros.h"

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
  const int64_t batch = ids->shape[0], length = ids->shape[1];
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

  ASSIGN_OR_RETURN(const std::vector<int64_t> prefill, golden.Ints("prefill_len", {}));
  golden.prefill_len_ = prefill[0];
  if (golden.prefill_len_ < 1 || golden.prefill_len_ >= length) {
    return error("prefill_len is ", golden.prefill_len_, ", expected 1 to ", length - 1);
  }
  return golden;
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
