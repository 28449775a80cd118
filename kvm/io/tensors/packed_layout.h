#ifndef KVM_IO_TENSORS_PACKED_LAYOUT_H_
#define KVM_IO_TENSORS_PACKED_LAYOUT_H_

// What the reader and the writer of packed models share. Described byte by byte in docs/formats/packed.md.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/io/tensors/model_fingerprint.h"
#include "kvm/io/tensors/packed.pb.h"
#include "kvm/kernels/tensor.h"

namespace kvm {

inline constexpr absl::string_view kPackedMagic = "KVMPACK\n";
// What is written, and the oldest that is read. Version 1 takes the spec as it is written into its fingerprint, and has
// no panels of int8.
inline constexpr uint32_t kPackedVersion = 2;
inline constexpr uint32_t kFirstPackedVersion = 1;
inline constexpr uint64_t kMaxPackedHeader = 100 * 1000 * 1000;
// Magic, the header's length, its hash.
inline constexpr uint64_t kPackedFrame = 24;
// Tensors, and the data as a whole, begin at multiples of it.
inline constexpr uint64_t kPackedAlignment = 64;

inline constexpr uint64_t AlignPacked(uint64_t position) {
  return (position + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
}

// How files of a version took their fingerprint.
inline constexpr SpecForm FingerprintForm(uint32_t version) {
  return version == 1 ? SpecForm::kAsWritten : SpecForm::kCanonical;
}

// Whether tensors may have this dtype.
inline constexpr bool IsPackable(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// What panels of a tensor of `dtype` hold.
inline constexpr DType PanelStorage(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kI8 ? dtype : DType::kF32;
}

// A table entry's dtype and shape, and the bytes that these take in the entry's layout. InvalidArgument, beginning with
// `path` and the tensor's name, for an entry that cannot be: another dtype (I8 is for panels alone), negative or too
// large extents, panels of something else than a matrix.
struct PackedSize {
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t bytes = 0;
};
absl::StatusOr<PackedSize> SizeOfPacked(const PackedTensor& tensor, const std::string& path);

// Parses and checks the header of a packed model, of which `file` is all bytes: frame, hash, version, spec, and that
// the tensors lie one after the other up to the end.
// InvalidArgument, beginning with `path`. Sets `data_begin` to where the data begins in the file.
absl::StatusOr<PackedHeader> ParsePackedHeader(absl::string_view file, const std::string& path, uint64_t* data_begin);

}  // namespace kvm

#endif  // KVM_IO_TENSORS_PACKED_LAYOUT_H_
