#ifndef KVM_IO_TORCH_ZIP_WRITER_H_
#define KVM_IO_TORCH_ZIP_WRITER_H_

// Writing zip files of stored entries whose data begin at multiples of 64, as PyTorch lays out its checkpoints.
//
//   ASSIGN_OR_RETURN(ZipWriter zip, ZipWriter::Create("model.pth"));
//   RETURN_IF_ERROR(zip.Add("archive/version", "3\n"));
//   RETURN_IF_ERROR(zip.Commit());   // without it no file appears

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/base/file/atomic_file.h"

namespace kvm {

struct ZipWriterOptions {
  // Sizes and offsets from here on are written as zip64. Tests lower it.
  uint64_t zip64_from = 0xffffffff;
  // Asked between pieces of data, unless it is empty: true ends the writing with Cancelled.
  std::function<bool()> cancelled;
};

class ZipWriter {
 public:
  // Errors as AtomicFile::Create.
  static absl::StatusOr<ZipWriter> Create(const std::string& path, const ZipWriterOptions& options = {});

  // Appends an entry. `name` is UTF-8 of at most 65,535 bytes and new.
  absl::Status Add(absl::string_view name, absl::string_view data);

  // Writes the directory and lets the file appear.
  absl::Status Commit();

 private:
  struct Written {
    std::string name;
    uint64_t size = 0;
    uint64_t offset = 0;
    uint32_t crc32 = 0;
  };

  ZipWriter(AtomicFile file, const ZipWriterOptions& options) : file_(std::move(file)), options_(options) {}
  bool NeedsZip64(uint64_t number) const { return number >= options_.zip64_from; }
  absl::Status Append(absl::string_view bytes);
  std::string DirectoryHeader(const Written& entry) const;
  std::string EndRecords(uint64_t directory_size) const;

  AtomicFile file_;
  ZipWriterOptions options_;
  uint64_t position_ = 0;
  std::vector<Written> entries_;
};

}  // namespace kvm

#endif  // KVM_IO_TORCH_ZIP_WRITER_H_
