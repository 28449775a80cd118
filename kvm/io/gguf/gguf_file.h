#ifndef KVM_IO_GGUF_GGUF_FILE_H_
#define KVM_IO_GGUF_GGUF_FILE_H_

// GGUF, the format of llama.cpp's models: keys and values, then tensors, of which many are quantized.
// docs/formats/gguf.md has the layout and what is refused.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, GgufFile::Open("model-Q4_1.gguf"));
//   ASSIGN_OR_RETURN(absl::string_view architecture, file->metadata().String("general.architecture"));
//   const HeldTensor embedding = file->Read("token_embd.weight");  // float32, for as long as `embedding`

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvm/io/gguf/gguf_metadata.h"
#include "kvm/io/gguf/quant_blocks.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

// A tensor where it lies in the file: rows of whole blocks, one behind the other.
struct GgufTensor {
  BlockType type = BlockType::kF32;
  Shape shape;  // outermost extent first, as everywhere here; the format lists the innermost first
  absl::Span<const uint8_t> bytes;
};

// Rows first, first + 1, ... as float32, as many as `out` has room for; a row is the innermost extent. The tensor has
// these rows, and is quantized or F32, F16 or BF16.
void CopyRows(const GgufTensor& tensor, int64_t first, absl::Span<float> out);

// A mapped file, or all parts of one that is split. As a WeightSource it has float32 tensors for quantized ones, to the
// bit those of the format's own tools: Read() makes one for the asking, Find() makes it once and keeps it. All others
// are shown as they lie in the file. Thread-safe once open.
class GgufFile : public WeightSource {
 public:
  // Opens a file, and if its keys say that it is one part of several (split.count), the others beside it, whose names
  // differ in the number alone (NAME-00002-of-00003.gguf).
  // InvalidArgument, naming the file, the key or tensor and what was expected, for anything but well-formed parts that
  // belong together: other versions than 2 and 3, big-endian files, files that end too early or too late, duplicate
  // names, types that are not read, extents that no whole blocks fill, tensors that overlap or leave gaps. Errors of
  // MappedFile::Open, also for parts that are not there. Memory is a small multiple of the header's bytes.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);

  // Those of the first part; they live as long as Memory().
  const GgufMetadata& metadata() const;
  uint32_t version() const;
  // The paths of all parts, in order.
  std::vector<std::string> parts() const;

  // The tensor as it lies in the file; null when there is none. Lives as long as Memory().
  const GgufTensor* FindTensor(absl::string_view name) const;

  std::string Description() const override { return path_; }
  std::vector<std::string> Names() const override;
  const TensorView* Find(absl::string_view name) const override;
  std::optional<TensorInfo> Info(absl::string_view name) const override;
  std::optional<StoredForm> Stored(absl::string_view name) const override;
  HeldTensor Read(absl::string_view name) const override;
  std::shared_ptr<const void> Memory() const override;

 private:
  struct Contents;
  GgufFile(std::string path, std::shared_ptr<Contents> contents);

  std::string path_;
  std::shared_ptr<Contents> contents_;
};

}  // namespace kvm

#endif  // KVM_IO_GGUF_GGUF_FILE_H_
