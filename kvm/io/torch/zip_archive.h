#ifndef KVM_IO_TORCH_ZIP_ARCHIVE_H_
#define KVM_IO_TORCH_ZIP_ARCHIVE_H_

// Reading zip files whose entries lie there as they are ("stored"), as PyTorch writes its checkpoints. Nothing is
// copied. docs/formats/rwkv_pth.md has the layout.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kvm {

// A file in an archive. Views into the archive's bytes.
struct ZipEntry {
  absl::string_view name;
  absl::string_view data;
  uint32_t crc32 = 0;  // as the archive says; CheckSum compares
};

// The entries of an archive (zip64 or not) in the order of its central directory. InvalidArgument, beginning with
// `source` and naming the entry, for anything but a well-formed archive of stored entries: other compression,
// encryption, several disks, names that repeat, sizes and offsets beyond the file, entries that overlap each other or
// the directory, local headers that disagree with it, bytes before or between the directory's parts. Up to 65,535 bytes
// behind the archive's end are passed over. Uses memory in proportion to the directory alone.
absl::StatusOr<std::vector<ZipEntry>> ReadZipArchive(absl::Span<const uint8_t> bytes, const std::string& source);

// The names of an archive's entries, whatever these are, as far as its directory can be read: for messages about what
// it might have been.
std::vector<absl::string_view> ListZipNames(absl::Span<const uint8_t> bytes);

// Reads the entry's data: InvalidArgument when they do not have its checksum.
absl::Status CheckSum(const ZipEntry& entry, const std::string& source);

}  // namespace kvm

#endif  // KVM_IO_TORCH_ZIP_ARCHIVE_H_
