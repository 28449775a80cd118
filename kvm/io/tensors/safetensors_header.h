#ifndef KVM_IO_TENSORS_SAFETENSORS_HEADER_H_
#define KVM_IO_TENSORS_SAFETENSORS_HEADER_H_

// The JSON header of a safetensors file, for safetensors.cc alone.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/kernels/tensor.h"

namespace kvm {

inline constexpr uint64_t kMaxSafetensorsHeader = 100 * 1000 * 1000;
inline constexpr absl::string_view kSafetensorsMetadata = "__metadata__";

struct SafetensorsEntry {
  DType dtype;
  Shape shape;
  uint64_t begin;  // bytes from the end of the header
  uint64_t end;
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> tensors;
  std::map<std::string, std::string> metadata;
};

// Parses and checks `json`, the header of a file whose data has `data_size` bytes. Errors begin with `path`.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json, uint64_t data_size,
                                                         const std::string& path);

}  // namespace kvm

#endif  // KVM_IO_TENSORS_SAFETENSORS_HEADER_H_
