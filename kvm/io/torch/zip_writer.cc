#include "kvm/io/torch/zip_writer.h"

#include "absl/strings/str_cat.h"
#include "kvm/base/check.h"
#include "kvm/base/file/crc32.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tensors/tensor_stream.h"
#include "kvm/io/torch/zip_format.h"

namespace kvm {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint16_t kPaddingExtra = 0x4246;  // "FB", as PyTorch pads
constexpr uint16_t kVersion = 20;           // of the format, that stored entries need
constexpr uint16_t kZip64Version = 45;
constexpr uint16_t kDate = 1 << 5 | 1;  // the first day of 1980, the format's earliest: same tensors, same bytes

void Put(uint64_t number, size_t size, std::string* out) {
  for (size_t i = 0; i < size; ++i) out->push_back(static_cast<char>(number >> (8 * i) & 0xff));
}
void Put16(uint64_t number, std::string* out) { Put(number, 2, out); }
void Put32(uint64_t number, std::string* out) { Put(number, 4, out); }
void Put64(uint64_t number, std::string* out) { Put(number, 8, out); }

// What local headers and the directory say alike: version, flags, method, time, date, checksum.
void PutCommon(bool zip64, uint32_t crc32, std::string* out) {
  Put16(zip64 ? kZip64Version : kVersion, out);
  Put16(kZipFlagUtf8, out);
  Put16(kZipStored, out);
  Put16(0, out);
  Put16(kDate, out);
  Put32(crc32, out);
}

}  // namespace

absl::StatusOr<ZipWriter> ZipWriter::Create(const std::string& path, const ZipWriterOptions& options) {
  ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  return ZipWriter(std::move(file), options);
}

absl::Status ZipWriter::Append(absl::string_view bytes) {
  position_ += bytes.size();
  return AppendPieces(bytes, options_.cancelled, &file_);
}

absl::Status ZipWriter::Add(absl::string_view name, absl::string_view data) {
  CheckAtMost(static_cast<int64_t>(name.size()), 0xffff, "name.size()");
  const Written entry = {std::string(name), data.size(), position_, Crc32(data)};
  const bool zip64 = NeedsZip64(entry.size);
  std::string extra;
  if (zip64) {
    Put16(kZip64Extra, &extra);
    Put16(16, &extra);
    Put64(entry.size, &extra);
    Put64(entry.size, &extra);
  }
  const uint64_t data_at = position_ + kZipLocalHeaderSize + name.size() + extra.size() + 4;
  const uint64_t padding = (kAlignment - data_at % kAlignment) % kAlignment;
  Put16(kPaddingExtra, &extra);
  Put16(padding, &extra);
  extra.append(padding, 'Z');

  std::string header;
  Put32(kZipLocalHeader, &header);
  PutCommon(zip64, entry.crc32, &header);
  Put32(zip64 ? kZip64Size : entry.size, &header);
  Put32(zip64 ? kZip64Size : entry.size, &header);
  Put16(name.size(), &header);
  Put16(extra.size(), &header);
  absl::StrAppend(&header, name, extra);
  RETURN_IF_ERROR(Append(header));
  RETURN_IF_ERROR(Append(data));
  entries_.push_back(entry);
  return absl::OkStatus();
}

std::string ZipWriter::DirectoryHeader(const Written& entry) const {
  const bool large = NeedsZip64(entry.size), far = NeedsZip64(entry.offset);
  std::string extra;
  if (large || far) {
    Put16(kZip64Extra, &extra);
    Put16((large ? 16 : 0) + (far ? 8 : 0), &extra);
    if (large) Put64(entry.size, &extra);
    if (large) Put64(entry.size, &extra);
    if (far) Put64(entry.offset, &extra);
  }
  std::string header;
  Put32(kZipDirectoryHeader, &header);
  Put16(kZip64Version, &header);  // of the software that wrote it
  PutCommon(large || far, entry.crc32, &header);
  Put32(large ? kZip64Size : entry.size, &header);
  Put32(large ? kZip64Size : entry.size, &header);
  Put16(entry.name.size(), &header);
  Put16(extra.size(), &header);
  Put16(0, &header);  // comment
  Put16(0, &header);  // disk
  Put16(0, &header);  // attributes
  Put32(0, &header);
  Put32(far ? kZip64Size : entry.offset, &header);
  absl::StrAppend(&header, entry.name, extra);
  return header;
}

std::string ZipWriter::EndRecords(uint64_t directory_size) const {
  const uint64_t count = entries_.size();
  const uint64_t directory = position_ - directory_size;
  const bool zip64 = count >= kZip64Count || NeedsZip64(directory) || NeedsZip64(directory_size);
  std::string records;
  if (zip64) {
    Put32(kZip64EndRecord, &records);
    Put64(kZip64EndRecordSize - 12, &records);
    Put16(kZip64Version, &records);
    Put16(kZip64Version, &records);
    Put32(0, &records);  // disks
    Put32(0, &records);
    Put64(count, &records);
    Put64(count, &records);
    Put64(directory_size, &records);
    Put64(directory, &records);
    Put32(kZip64Locator, &records);
    Put32(0, &records);
    Put64(position_, &records);
    Put32(1, &records);
  }
  Put32(kZipEndRecord, &records);
  Put16(0, &records);  // disks
  Put16(0, &records);
  Put16(zip64 ? kZip64Count : count, &records);
  Put16(zip64 ? kZip64Count : count, &records);
  Put32(zip64 ? kZip64Size : directory_size, &records);
  Put32(zip64 ? kZip64Size : directory, &records);
  Put16(0, &records);  // comment
  return records;
}

absl::Status ZipWriter::Commit() {
  const uint64_t begin = position_;
  for (const Written& entry : entries_) RETURN_IF_ERROR(Append(DirectoryHeader(entry)));
  RETURN_IF_ERROR(Append(EndRecords(position_ - begin)));
  return file_.Commit();
}

}  // namespace kvm
