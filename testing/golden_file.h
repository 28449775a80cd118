#ifndef TESTING_GOLDEN_FILE_H_
#define TESTING_GOLDEN_FILE_H_

// golden.safetensors, read and checked. golden_check.h says what it holds.

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/kernels/tensor.h"

namespace kvm {

class GoldenFile {
 public:
  // InvalidArgument, naming file and tensor, unless input_ids and prefill_len are there and make sense.
  static absl::StatusOr<GoldenFile> Open(const std::string& path);
  // The same for a single layer, with x F32 [B, T, width] in the place of input_ids; x() instead of tokens().
  static absl::StatusOr<GoldenFile> OpenLayer(const std::string& path, int64_t width);

  int64_t batch() const { return batch_; }
  int64_t length() const { return length_; }
  int64_t prefill_len() const { return prefill_len_; }
  const std::vector<std::vector<int32_t>>& tokens() const { return tokens_; }
  const std::vector<float>& x() const { return x_; }

  std::vector<std::string> Names() const { return file_->Names(); }
  bool Has(const std::string& name) const { return file_->Find(name) != nullptr; }

  // A tensor that must be there, with dtype and shape as said. Marks it as used.
  absl::StatusOr<std::vector<float>> Floats(const std::string& name, const Shape& shape);
  absl::StatusOr<std::vector<int64_t>> Ints(const std::string& name, const Shape& shape);

  // A tensor that is there. Marks it as used.
  const TensorView& Use(const std::string& name);

  // InvalidArgument that lists all tensors that were not used, gradients aside.
  absl::Status CheckAllUsed() const;

 private:
  absl::Status ReadPrefillLength();
  absl::StatusOr<const TensorView*> Expect(const std::string& name, DType dtype, const Shape& shape);

  std::unique_ptr<SafetensorsFile> file_;
  std::set<std::string> used_;
  int64_t batch_ = 0;
  int64_t length_ = 0;
  int64_t prefill_len_ = 0;
  std::vector<std::vector<int32_t>> tokens_;  // [B][T]
  std::vector<float> x_;                      // [B, T, width]
};

// The elements of an I64 tensor.
std::vector<int64_t> ReadInts(const TensorView& tensor);

}  // namespace kvm

#endif  // TESTING_GOLDEN_FILE_H_
