#include "kvm/io/torch/zip_archive.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/file/crc32.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/torch/zip_format.h"

namespace kvm {
namespace {

// How far from the file's end an end record may be: as far as the longest comment reaches.
constexpr size_t kLongestTail = 0xffff;

// The little-endian number in `size` bytes from `at`, which lie inside.
uint64_t Number(absl::string_view bytes, size_t at, size_t size) {
  uint64_t number = 0;
  for (size_t i = 0; i < size; ++i) number |= uint64_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  return number;
}
uint32_t U32(absl::string_view bytes, size_t at) { return static_cast<uint32_t>(Number(bytes, at, 4)); }
uint16_t U16(absl::string_view bytes, size_t at) { return static_cast<uint16_t>(Number(bytes, at, 2)); }
uint64_t U64(absl::string_view bytes, size_t at) { return Number(bytes, at, 8); }

// Where the central directory lies.
struct Directory {
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t entries = 0;
};

// An entry as the central directory describes it.
struct Header {
  absl::string_view name;
  uint16_t flags = 0;
  uint16_t method = 0;
  uint32_t crc32 = 0;
  uint64_t compressed = 0;
  uint64_t size = 0;
  uint64_t offset = 0;  // of the local header
};

// Bytes that one entry covers.
struct Extent {
  uint64_t begin;
  uint64_t end;
  absl::string_view name;
};

absl::string_view MethodName(uint16_t method) {
  switch (method) {
    case 8:
      return " (deflate)";
    case 12:
      return " (bzip2)";
    case 14:
      return " (lzma)";
    case 93:
      return " (zstd)";
    default:
      return "";
  }
}

class Reader {
 public:
  Reader(absl::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  absl::StatusOr<std::vector<ZipEntry>> Read();
  std::vector<absl::string_view> Names() const;

 private:
  absl::Status Fail(const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat(source_, ": broken zip archive: ", why));
  }
  absl::Status FailEntry(absl::string_view name, const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat(source_, ": entry ", Quoted(name), ": ", why));
  }

  std::optional<size_t> FindEndRecord() const;  // of at least kZipEndRecordSize bytes
  absl::StatusOr<Directory> FindDirectory() const;
  absl::StatusOr<Directory> ReadZip64End(size_t end_record) const;
  absl::StatusOr<Header> ReadHeader(size_t* at, size_t end) const;
  absl::Status CheckPlain(const Header& header) const;
  absl::StatusOr<std::vector<uint64_t>> ReadZip64Extra(absl::string_view extra, absl::string_view name) const;
  absl::StatusOr<ZipEntry> ReadEntry(const Header& header, uint64_t limit, Extent* extent) const;
  absl::Status CheckLocalSizes(const Header& header, absl::string_view local, absl::string_view extra) const;
  std::optional<size_t> DescriptorSize(const Header& header, absl::string_view rest) const;

  absl::string_view bytes_;
  std::string source_;
};

absl::StatusOr<Directory> Reader::ReadZip64End(size_t end_record) const {
  const absl::string_view locator = bytes_.substr(end_record - kZip64LocatorSize, kZip64LocatorSize);
  const uint64_t at = U64(locator, 8);
  const size_t limit = end_record - kZip64LocatorSize;
  if (U32(locator, 4) != 0 || U32(locator, 16) > 1) return Fail("it spans several disks");
  if (limit < kZip64EndRecordSize || at > limit - kZip64EndRecordSize || U32(bytes_, at) != kZip64EndRecord) {
    return Fail(absl::StrCat("no zip64 end record at byte ", at));
  }
  const absl::string_view record = bytes_.substr(at, limit - at);
  // The size leaves out the signature and itself.
  if (U64(record, 4) != record.size() - 12) {
    return Fail(absl::StrCat("a zip64 end record of ", U64(record, 4), " bytes, expected ", record.size() - 12));
  }
  if (U32(record, 16) != 0 || U32(record, 20) != 0 || U64(record, 24) != U64(record, 32)) {
    return Fail("it spans several disks");
  }
  const Directory directory = {U64(record, 48), U64(record, 40), U64(record, 32)};
  if (directory.offset > at || directory.size != at - directory.offset) {
    return Fail(absl::StrCat("its directory of ", directory.size, " bytes at byte ", directory.offset,
                             " does not end where the zip64 end record begins (byte ", at, ")"));
  }
  return directory;
}

// The end record is the last thing but for a comment that it gives the length of. Where no record says so, the last one
// counts, and what else is behind it belongs to nothing: so do PyTorch's own reader and Python's take such files.
std::optional<size_t> Reader::FindEndRecord() const {
  const size_t last = bytes_.size() - kZipEndRecordSize;
  const size_t first = last - std::min(last, kLongestTail);
  std::optional<size_t> with_tail;
  for (size_t at = last + 1; at-- > first;) {
    if (U32(bytes_, at) != kZipEndRecord || U16(bytes_, at + 20) > last - at) continue;
    if (U16(bytes_, at + 20) == last - at) return at;
    if (!with_tail.has_value()) with_tail = at;
  }
  return with_tail;
}

absl::StatusOr<Directory> Reader::FindDirectory() const {
  if (bytes_.size() < kZipEndRecordSize) return Fail(absl::StrCat("only ", bytes_.size(), " bytes"));
  const std::optional<size_t> end_record = FindEndRecord();
  if (!end_record.has_value()) {
    return Fail(absl::StrCat("no end record in its last ", std::min(bytes_.size(), kZipEndRecordSize + kLongestTail),
                             " bytes: the file is cut short, or more than that stands behind its end"));
  }
  const size_t at = *end_record;

  const absl::string_view record = bytes_.substr(at);
  const Directory small = {U32(record, 16), U32(record, 12), U16(record, 10)};
  const uint16_t disk_entries = U16(record, 8);
  if (at >= kZip64LocatorSize && U32(bytes_, at - kZip64LocatorSize) == kZip64Locator) {
    ASSIGN_OR_RETURN(const Directory large, ReadZip64End(at));
    const bool agrees = (small.offset == large.offset || small.offset == kZip64Size) &&
                        (small.size == large.size || small.size == kZip64Size) &&
                        (small.entries == large.entries || small.entries == kZip64Count);
    if (!agrees) return Fail("its two end records disagree");
    return large;
  }
  if (U16(record, 4) != 0 || U16(record, 6) != 0 || disk_entries != small.entries) {
    return Fail("it spans several disks");
  }
  if (small.offset > at || small.size != at - small.offset) {
    return Fail(absl::StrCat("its directory of ", small.size, " bytes at byte ", small.offset,
                             " does not end where the end record begins (byte ", at, ")"));
  }
  return small;
}

// The numbers of the zip64 extra field; none when there is no such field.
absl::StatusOr<std::vector<uint64_t>> Reader::ReadZip64Extra(absl::string_view extra, absl::string_view name) const {
  std::vector<uint64_t> numbers;
  while (!extra.empty()) {
    if (extra.size() < 4 || U16(extra, 2) > extra.size() - 4) return FailEntry(name, "broken extra fields");
    const absl::string_view field = extra.substr(4, U16(extra, 2));
    if (U16(extra, 0) == kZip64Extra) {
      if (!numbers.empty()) return FailEntry(name, "two zip64 fields");
      for (size_t at = 0; at + 8 <= field.size(); at += 8) numbers.push_back(U64(field, at));
    }
    extra.remove_prefix(4 + field.size());
  }
  return numbers;
}

absl::StatusOr<Header> Reader::ReadHeader(size_t* at, size_t end) const {
  if (end - *at < kZipDirectoryHeaderSize || U32(bytes_, *at) != kZipDirectoryHeader) {
    return Fail(absl::StrCat("no directory entry at byte ", *at));
  }
  const absl::string_view fixed = bytes_.substr(*at, kZipDirectoryHeaderSize);
  const size_t name_size = U16(fixed, 28), extra_size = U16(fixed, 30), comment_size = U16(fixed, 32);
  if (name_size + extra_size + comment_size > end - *at - kZipDirectoryHeaderSize) {
    return Fail(absl::StrCat("the directory entry at byte ", *at, " reaches beyond the directory"));
  }
  Header header;
  header.name = bytes_.substr(*at + kZipDirectoryHeaderSize, name_size);
  header.flags = U16(fixed, 8);
  header.method = U16(fixed, 10);
  header.crc32 = U32(fixed, 16);
  header.compressed = U32(fixed, 20);
  header.size = U32(fixed, 24);
  header.offset = U32(fixed, 42);
  const absl::string_view extra = bytes_.substr(*at + kZipDirectoryHeaderSize + name_size, extra_size);
  ASSIGN_OR_RETURN(const std::vector<uint64_t> numbers, ReadZip64Extra(extra, header.name));
  size_t used = 0;
  for (uint64_t* field : {&header.size, &header.compressed, &header.offset}) {
    if (*field != kZip64Size) continue;
    if (used == numbers.size()) return FailEntry(header.name, "lacks the zip64 field that its sizes point to");
    *field = numbers[used++];
  }
  if (U16(fixed, 34) != 0) return FailEntry(header.name, "lies on another disk");
  *at += kZipDirectoryHeaderSize + name_size + extra_size + comment_size;
  return header;
}

// Whether the entry's data lie there as they are.
absl::Status Reader::CheckPlain(const Header& header) const {
  if ((header.flags & kZipFlagEncrypted) != 0) return FailEntry(header.name, "is encrypted, expected plain data");
  if (header.method != kZipStored) {
    return FailEntry(header.name, absl::StrCat("is compressed by method ", header.method, MethodName(header.method),
                                               ", expected stored data (method 0), as torch.save writes"));
  }
  if (header.compressed != header.size) {
    return FailEntry(header.name, absl::StrCat("is stored, but takes ", header.compressed, " bytes for ", header.size));
  }
  return absl::OkStatus();
}

absl::Status Reader::CheckLocalSizes(const Header& header, absl::string_view local, absl::string_view extra) const {
  ASSIGN_OR_RETURN(const std::vector<uint64_t> numbers, ReadZip64Extra(extra, header.name));
  uint64_t size = U32(local, 22), compressed = U32(local, 18);
  // A local zip64 field has both.
  if ((size == kZip64Size || compressed == kZip64Size) && numbers.size() >= 2) {
    size = numbers[0];
    compressed = numbers[1];
  }
  // Zeros when what was written first did not know yet.
  const bool later = (header.flags & kZipFlagDataDescriptor) != 0;
  const auto agrees = [later](uint64_t here, uint64_t there) { return here == there || (later && here == 0); };
  if (agrees(size, header.size) && agrees(compressed, header.size) && agrees(U32(local, 14), header.crc32)) {
    return absl::OkStatus();
  }
  return FailEntry(header.name, "its local header has another size or checksum than the directory");
}

// Bytes of the data descriptor that `rest` begins with, in any of its four forms; nothing when there is none.
std::optional<size_t> Reader::DescriptorSize(const Header& header, absl::string_view rest) const {
  for (const size_t signature : {4, 0}) {
    for (const size_t width : {4, 8}) {
      const size_t size = signature + 4 + 2 * width;
      if (rest.size() < size) continue;
      if (signature != 0 && U32(rest, 0) != kZipDataDescriptor) continue;
      if (U32(rest, signature) == header.crc32 && Number(rest, signature + 4, width) == header.size &&
          Number(rest, signature + 4 + width, width) == header.size) {
        return size;
      }
    }
  }
  return std::nullopt;
}

absl::StatusOr<ZipEntry> Reader::ReadEntry(const Header& header, uint64_t limit, Extent* extent) const {
  const auto beyond = [&] {
    return FailEntry(header.name, absl::StrCat("its ", header.size, " bytes at byte ", header.offset,
                                               " reach beyond the data, which end at byte ", limit));
  };
  if (header.offset > limit || limit - header.offset < kZipLocalHeaderSize) return beyond();
  const absl::string_view local = bytes_.substr(header.offset, limit - header.offset);
  if (U32(local, 0) != kZipLocalHeader) {
    return FailEntry(header.name, absl::StrCat("no local header at byte ", header.offset));
  }
  const size_t name_size = U16(local, 26), extra_size = U16(local, 28);
  const size_t data_at = kZipLocalHeaderSize + name_size + extra_size;
  if (data_at > local.size() || header.size > local.size() - data_at) return beyond();
  if (local.substr(kZipLocalHeaderSize, name_size) != header.name) {
    return FailEntry(header.name, absl::StrCat("its local header names ",
                                               Quoted(local.substr(kZipLocalHeaderSize, name_size)), " instead"));
  }
  if (U16(local, 6) != header.flags || U16(local, 8) != header.method) {
    return FailEntry(header.name, "its local header has other flags or another method than the directory");
  }
  RETURN_IF_ERROR(CheckLocalSizes(header, local, local.substr(kZipLocalHeaderSize + name_size, extra_size)));
  uint64_t end = data_at + header.size;
  if ((header.flags & kZipFlagDataDescriptor) != 0) {
    const std::optional<size_t> descriptor = DescriptorSize(header, local.substr(end));
    if (!descriptor.has_value()) {
      return FailEntry(header.name, "the data descriptor behind its data is missing or disagrees with the directory");
    }
    end += *descriptor;
  }
  *extent = {header.offset, header.offset + end, header.name};
  return ZipEntry{header.name, local.substr(data_at, header.size), header.crc32};
}

std::vector<absl::string_view> Reader::Names() const {
  std::vector<absl::string_view> names;
  const absl::StatusOr<Directory> directory = FindDirectory();
  if (!directory.ok()) return names;
  size_t at = directory->offset;
  const size_t end = directory->offset + directory->size;
  while (at < end) {
    const absl::StatusOr<Header> header = ReadHeader(&at, end);
    if (!header.ok()) break;
    names.push_back(header->name);
  }
  return names;
}

absl::StatusOr<std::vector<ZipEntry>> Reader::Read() {
  ASSIGN_OR_RETURN(const Directory directory, FindDirectory());
  std::vector<ZipEntry> entries;
  std::vector<Extent> extents;
  absl::flat_hash_set<absl::string_view> names;
  size_t at = directory.offset;
  const size_t end = directory.offset + directory.size;
  while (at < end) {
    ASSIGN_OR_RETURN(const Header header, ReadHeader(&at, end));
    RETURN_IF_ERROR(CheckPlain(header));
    if (!names.insert(header.name).second) return FailEntry(header.name, "is there twice");
    extents.emplace_back();
    ASSIGN_OR_RETURN(ZipEntry entry, ReadEntry(header, directory.offset, &extents.back()));
    entries.push_back(entry);
  }
  if (entries.size() != directory.entries) {
    return Fail(
        absl::StrCat("its end record counts ", directory.entries, " entries, the directory has ", entries.size()));
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].begin < extents[i - 1].end) {
      return FailEntry(extents[i].name, absl::StrCat("overlaps entry ", Quoted(extents[i - 1].name)));
    }
  }
  return entries;
}

}  // namespace

absl::StatusOr<std::vector<ZipEntry>> ReadZipArchive(absl::Span<const uint8_t> bytes, const std::string& source) {
  return Reader({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, source).Read();
}

std::vector<absl::string_view> ListZipNames(absl::Span<const uint8_t> bytes) {
  return Reader({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "").Names();
}

absl::Status CheckSum(const ZipEntry& entry, const std::string& source) {
  const uint32_t sum = Crc32(entry.data);
  if (sum == entry.crc32) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(source, ": entry ", Quoted(entry.name), ": its data have checksum ",
                                                 absl::Hex(sum, absl::kZeroPad8), ", the archive says ",
                                                 absl::Hex(entry.crc32, absl::kZeroPad8), ": the file is damaged"));
}

}  // namespace kvm
