#include "kvm/io/tensors/safetensors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "kvm/base/check.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/file_kind.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tensors/safetensors_header.h"
#include "kvm/kernels/dtype.h"
#include "nlohmann/json.hpp"

namespace kvm {
namespace {

constexpr size_t kLengthBytes = 8;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are used as they lie in the file: little-endian");

uint64_t ReadLength(absl::Span<const uint8_t> bytes) {
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  return length;
}

// The header's text, once its length is known to be sensible.
absl::StatusOr<absl::string_view> FindHeader(absl::Span<const uint8_t> bytes, const std::string& path) {
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a safetensors file: ", why, LooksLike(text.substr(0, kFileKindBytes))));
  };
  if (bytes.size() < kLengthBytes) {
    return refuse(absl::StrCat("the file has ", bytes.size(), " bytes; expected at least 8"));
  }
  const uint64_t length = ReadLength(bytes);
  if (length > kMaxSafetensorsHeader) {
    return refuse(absl::StrCat("a header of ", length, " bytes; expected at most ", kMaxSafetensorsHeader));
  }
  const size_t left = bytes.size() - kLengthBytes;
  if (length > left && (left == 0 || text[kLengthBytes] == '{')) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the file is cut short: a header of ", length,
                                                   " bytes and only ", left, " bytes after its length"));
  }
  if (length > left) {
    return refuse(absl::StrCat("a header of ", length, " bytes; the file has ", bytes.size() - kLengthBytes,
                               " bytes after its length"));
  }
  const absl::string_view header = text.substr(kLengthBytes, length);
  if (!absl::StartsWith(header, "{")) return refuse("the header does not begin with '{'");
  return header;
}

// JSON as the Rust library behind the Python one writes it: compact, only what must be escaped is.
std::string JsonString(const std::string& text) { return nlohmann::json(text).dump(); }

absl::Status CheckNames(const std::string& path, const std::vector<TensorStream::Entry>& sorted,
                        const std::map<std::string, std::string>& metadata) {
  std::vector<absl::string_view> names;
  for (const TensorStream::Entry& tensor : sorted) {
    if (tensor.name == kSafetensorsMetadata) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": no tensor can be called ", kSafetensorsMetadata));
    }
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": two tensors are called ", Quoted(*twin)));
  }
  for (const auto& [key, value] : metadata) {
    names.push_back(key);
    names.push_back(value);
  }
  for (absl::string_view name : names) {
    if (FindInvalidUtf8(name) != name.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": names and metadata must be UTF-8, which ", Quoted(name), " is not"));
    }
  }
  return absl::OkStatus();
}

std::string HeaderOf(const std::vector<TensorStream::Entry>& tensors,
                     const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> fields;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata) pairs.push_back(absl::StrCat(JsonString(key), ":", JsonString(value)));
    fields.push_back(absl::StrCat("\"", kSafetensorsMetadata, "\":{", absl::StrJoin(pairs, ","), "}"));
  }
  int64_t position = 0;
  for (const auto& [name, info] : tensors) {
    const int64_t end = position + NumElements(info.shape) * SizeOf(info.dtype);
    fields.push_back(absl::StrCat(JsonString(name), ":{\"dtype\":\"", Name(info.dtype), "\",\"shape\":[",
                                  absl::StrJoin(info.shape, ","), "],\"data_offsets\":[", position, ",", end, "]}"));
    position = end;
  }
  std::string header = absl::StrCat("{", absl::StrJoin(fields, ","), "}");
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  const absl::Span<const uint8_t> bytes = mapped.bytes();
  ASSIGN_OR_RETURN(const absl::string_view json, FindHeader(bytes, path));
  const uint8_t* data = bytes.data() + kLengthBytes + json.size();
  const uint64_t data_size = bytes.size() - kLengthBytes - json.size();
  ASSIGN_OR_RETURN(SafetensorsHeader header, ParseSafetensorsHeader(json, data_size, path));

  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile(std::move(mapped)));
  file->metadata_ = std::move(header.metadata);
  for (auto& [name, entry] : header.tensors) {
    file->tensors_[name] = {entry.dtype, std::move(entry.shape), data + entry.begin};
  }
  return file;
}

std::vector<std::string> SafetensorsFile::Names() const {
  std::vector<std::string> names;
  for (const auto& entry : tensors_) names.push_back(entry.first);
  return names;
}

const TensorView* SafetensorsFile::Find(absl::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

absl::Status WriteSafetensors(const std::string& path, const std::vector<NamedTensorView>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  return WriteSafetensorsStream(path, StreamViews(tensors), metadata);
}

absl::Status WriteSafetensorsStream(const std::string& path, TensorStream stream,
                                    const std::map<std::string, std::string>& metadata) {
  std::vector<TensorStream::Entry>& tensors = stream.tensors;
  // DType's enumerators stand in the order of the Python library's, narrow ones first.
  std::sort(tensors.begin(), tensors.end(), [](const TensorStream::Entry& a, const TensorStream::Entry& b) {
    return a.info.dtype != b.info.dtype ? a.info.dtype > b.info.dtype : a.name < b.name;
  });
  RETURN_IF_ERROR(CheckNames(path, tensors, metadata));
  const std::string header = HeaderOf(tensors, metadata);
  if (header.size() > kMaxSafetensorsHeader) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": names, shapes and metadata take ", header.size(),
                                                   " bytes; a header holds at most ", kMaxSafetensorsHeader));
  }
  ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  std::string length;
  for (size_t i = 0; i < kLengthBytes; ++i) length.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  RETURN_IF_ERROR(file.Append(length));
  RETURN_IF_ERROR(file.Append(header));
  for (const TensorStream::Entry& entry : tensors) {
    ASSIGN_OR_RETURN(const HeldTensor tensor, stream.read(entry.name));
    const size_t size = static_cast<size_t>(tensor.view.byte_size());
    Check(size == 0 || tensor.view.data != nullptr, "data of every tensor that has elements");
    RETURN_IF_ERROR(AppendPieces({static_cast<const char*>(tensor.view.data), size}, stream.cancelled, &file));
  }
  RETURN_IF_ERROR(CheckNotCancelled(stream.cancelled));
  return file.Commit();
}

}  // namespace kvm
