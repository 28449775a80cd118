#ifndef KVM_IO_GGUF_GGUF_HEADER_H_
#define KVM_IO_GGUF_GGUF_HEADER_H_

// What stands before the data of one GGUF file, for gguf_file.cc alone.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvm/io/gguf/gguf_metadata.h"
#include "kvm/io/gguf/quant_blocks.h"
#include "kvm/kernels/tensor.h"

namespace kvm {

struct GgufTensorEntry {
  absl::string_view name;
  BlockType type = BlockType::kF32;
  Shape shape;          // outermost extent first
  uint64_t offset = 0;  // from the beginning of the data
  absl::Span<const uint8_t> bytes;
};

struct GgufHeader {
  uint32_t version = 0;
  GgufMetadata metadata;
  std::vector<GgufTensorEntry> tensors;  // as the file lists them
};

// Parses and checks a file, of which `file` is all bytes: everything that GgufFile::Open says of one. Names, values and
// tensors show those bytes. Errors begin with `path`.
absl::StatusOr<GgufHeader> ParseGgufHeader(absl::Span<const uint8_t> file, const std::string& path);

}  // namespace kvm

#endif  // KVM_IO_GGUF_GGUF_HEADER_H_
