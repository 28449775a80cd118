#ifndef KVM_IO_TORCH_TORCH_FILE_H_
#define KVM_IO_TORCH_TORCH_FILE_H_

// PyTorch checkpoints (.pth, .pt, .bin) as torch.save writes them since version 1.6: a zip archive with a pickle that
// describes a dict of tensors, and their elements beside it. docs/formats/rwkv_pth.md has the layout.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/tensors/tensor_stream.h"
#include "kvm/io/torch/zip_archive.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

// A mapped checkpoint. Tensors are read in place; only those that do not lie row by row (transposed ones) or are minus
// what is stored (lazily negated ones) are copied, all together no more than the file has bytes. Tensors may share
// storages, but all together take at most 16 times the file's bytes. Nothing that the pickle asks for is ever run.
// Thread-safe once open.
class TorchFile : public WeightSource {
 public:
  // InvalidArgument, naming the path, the entry or tensor and what was expected, for anything but a well-formed archive
  // (ReadZipArchive) whose pickle (ReadPickle) is one dict of names and dense tensors on storages of exactly their
  // size; a file of another kind is named as what it is. Checksums of all but the tensors' data are compared.
  static absl::StatusOr<std::unique_ptr<TorchFile>> Open(const std::string& path);

  std::string Description() const override { return file_->path(); }
  std::vector<std::string> Names() const override;
  const TensorView* Find(absl::string_view name) const override;
  std::shared_ptr<const void> Memory() const override { return memory_; }

  // InvalidArgument names the first entry that is damaged.
  absl::Status CheckContents(const std::function<bool()>& cancelled) const override;

 private:
  // What the views show.
  struct Contents {
    explicit Contents(MappedFile mapped) : file(std::move(mapped)) {}
    MappedFile file;
    std::vector<Tensor> copies;
  };

  explicit TorchFile(std::shared_ptr<Contents> contents) : file_(&contents->file), memory_(std::move(contents)) {}

  const MappedFile* file_;
  std::shared_ptr<const void> memory_;
  std::vector<ZipEntry> entries_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

// Writes a dict of tensors, in the order given, as torch.load reads it (weights_only or not). Atomic. InvalidArgument
// for names that repeat or are not UTF-8, and for dtypes without a storage class (U16, U32, U64).
absl::Status WriteTorchFile(const std::string& path, const std::vector<NamedTensorView>& tensors);
// The same of tensors that are read while the file grows. Also the errors of the stream.
absl::Status WriteTorchStream(const std::string& path, const TensorStream& tensors);

}  // namespace kvm

#endif  // KVM_IO_TORCH_TORCH_FILE_H_
