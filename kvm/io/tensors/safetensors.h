#ifndef KVM_IO_TENSORS_SAFETENSORS_H_
#define KVM_IO_TENSORS_SAFETENSORS_H_

// The safetensors format: 8 bytes header length, a JSON header, then the tensors' bytes without gaps.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/tensors/tensor_stream.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

// A mapped file. Tensors are read in place; nothing is copied. Thread-safe once open.
class SafetensorsFile : public WeightSource {
 public:
  // InvalidArgument, naming the path, the tensor and what was expected, for anything but a well-formed file: header
  // truncated or longer than the file or than 100 MB, not JSON, duplicate names, unknown dtypes, wrongly typed fields,
  // negative or overflowing shapes, byte ranges that disagree with dtype and shape, overlap, leave gaps or end beyond
  // or before the file's end.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);

  std::string Description() const override { return file_.path(); }
  std::vector<std::string> Names() const override;
  const TensorView* Find(absl::string_view name) const override;

  // The header's __metadata__.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  explicit SafetensorsFile(MappedFile file) : file_(std::move(file)) {}

  MappedFile file_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Writes a file as the Python library does: tensors ordered by dtype (last in DType first), then name; header padded
// with spaces to a multiple of 8. Atomic. InvalidArgument for duplicate or reserved names and for text that is not
// UTF-8.
absl::Status WriteSafetensors(const std::string& path, const std::vector<NamedTensorView>& tensors,
                              const std::map<std::string, std::string>& metadata = {});
// The same of tensors that are read while the file grows. Also the errors of the stream.
absl::Status WriteSafetensorsStream(const std::string& path, TensorStream tensors,
                                    const std::map<std::string, std::string>& metadata = {});

}  // namespace kvm

#endif  // KVM_IO_TENSORS_SAFETENSORS_H_
