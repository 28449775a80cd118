#include "kvm/io/gguf/gguf_file.h"

#include <map>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "kvm/base/check.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/gguf/gguf_header.h"

namespace kvm {
namespace {

constexpr char kSplitNumber[] = "split.no";
constexpr char kSplitCount[] = "split.count";
constexpr char kSplitTensors[] = "split.tensors.count";
constexpr int64_t kMaxParts = 99999;  // five digits
constexpr int64_t kMaxTensors = int64_t{1} << 40;

struct Entry {
  GgufTensor tensor;
  TensorView view;  // of a quantized tensor only once it was asked for
  Tensor floats;    // what the view then shows
  size_t part = 0;
};

struct Part {
  MappedFile file;
  GgufHeader header;
};

absl::StatusOr<Part> OpenPart(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(GgufHeader header, ParseGgufHeader(file.bytes(), path));
  return Part{std::move(file), std::move(header)};
}

// What a file's keys say about the parts; one part where they say nothing.
struct Split {
  int64_t number = 0;  // from 0
  int64_t count = 1;
};

absl::StatusOr<Split> ReadSplit(const GgufMetadata& metadata) {
  Split split;
  ASSIGN_OR_RETURN(split.count, metadata.IntOr(kSplitCount, 1, kMaxParts, 1));
  ASSIGN_OR_RETURN(split.number, metadata.IntOr(kSplitNumber, 0, split.count - 1, 0));
  return split;
}

std::string Suffix(int64_t number, int64_t count) { return absl::StrFormat("-%05d-of-%05d.gguf", number + 1, count); }

// Opens the part `number` of a split file that begins with `stem`, and checks that it is that one.
absl::StatusOr<Part> OpenOther(const std::string& stem, const Split& split, int64_t number, const std::string& path) {
  absl::StatusOr<Part> part = OpenPart(absl::StrCat(stem, Suffix(number, split.count)));
  if (!part.ok()) {
    return absl::Status(part.status().code(), absl::StrCat(part.status().message(), "; ", path, " is part ",
                                                           split.number + 1, " of ", split.count));
  }
  const GgufMetadata& metadata = part->header.metadata;
  ASSIGN_OR_RETURN(const Split other, ReadSplit(metadata));
  if (other.count != split.count) {
    return metadata.Wrong(kSplitCount, absl::StrCat("is ", other.count, ", expected ", split.count, " as in ", path));
  }
  if (other.number != number) {
    return metadata.Wrong(kSplitNumber,
                          absl::StrCat("is ", other.number, ", expected ", number, " as the file's name says"));
  }
  return part;
}

absl::StatusOr<std::vector<Part>> OpenParts(const std::string& path) {
  ASSIGN_OR_RETURN(Part given, OpenPart(path));
  ASSIGN_OR_RETURN(const Split split, ReadSplit(given.header.metadata));
  std::vector<Part> parts;
  if (split.count == 1) {
    parts.push_back(std::move(given));
    return parts;
  }
  absl::string_view stem = path;
  const std::string suffix = Suffix(split.number, split.count);
  if (!absl::ConsumeSuffix(&stem, suffix)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": keys ", kSplitNumber, " and ", kSplitCount,
                                                   " say that it is part ", split.number + 1, " of ", split.count,
                                                   ", expected a name that ends in ", suffix));
  }
  for (int64_t i = 0; i < split.count; ++i) {
    if (i == split.number) {
      parts.push_back(std::move(given));
      continue;
    }
    ASSIGN_OR_RETURN(Part part, OpenOther(std::string(stem), split, i, path));
    parts.push_back(std::move(part));
  }
  return parts;
}

// `out` has room for whole rows.
void Dequantize(const GgufTensor& tensor, int64_t first, absl::Span<float> out) {
  const BlockSize block = SizeOf(tensor.type);
  const auto bytes_of = [&](int64_t elements) { return static_cast<size_t>(elements / block.elements * block.bytes); };
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  DequantizeBlocks(tensor.type, tensor.bytes.subspan(bytes_of(first * row), bytes_of(static_cast<int64_t>(out.size()))),
                   out);
}

Tensor FloatsOf(const GgufTensor& tensor) {
  Tensor floats(DType::kF32, tensor.shape);
  Dequantize(tensor, 0, floats.floats());
  return floats;
}

}  // namespace

void CopyRows(const GgufTensor& tensor, int64_t first, absl::Span<float> out) {
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  const int64_t elements = NumElements(tensor.shape);
  CheckAtLeast(first, 0, "first");
  if (elements == 0) {
    CheckEq(static_cast<int64_t>(out.size()), 0, "out.size()");
    return;
  }
  const int64_t rows = static_cast<int64_t>(out.size()) / row;
  CheckEq(static_cast<int64_t>(out.size()), rows * row, "out.size()");
  CheckAtMost(first, elements / row - rows, "first");
  Dequantize(tensor, first, out);
}

// Shared by the source and whoever uses its memory.
struct GgufFile::Contents {
  std::vector<MappedFile> files;
  GgufMetadata metadata;
  uint32_t version = 0;
  std::map<std::string, Entry, std::less<>> tensors;
  std::mutex mutex;  // guards Entry::view and Entry::floats of quantized tensors
};

GgufFile::GgufFile(std::string path, std::shared_ptr<Contents> contents)
    : path_(std::move(path)), contents_(std::move(contents)) {}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<Part> parts, OpenParts(path));
  auto contents = std::make_shared<Contents>();
  size_t total = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    total += parts[i].header.tensors.size();
    for (GgufTensorEntry& tensor : parts[i].header.tensors) {
      Entry entry;
      entry.part = i;
      entry.tensor = {tensor.type, std::move(tensor.shape), tensor.bytes};
      const std::optional<DType> dtype = DTypeOf(tensor.type);
      if (dtype.has_value()) entry.view = {*dtype, entry.tensor.shape, tensor.bytes.data()};
      const auto [twin, is_new] = contents->tensors.emplace(tensor.name, std::move(entry));
      if (is_new) continue;
      const std::string& there = parts[twin->second.part].file.path();
      return absl::InvalidArgumentError(absl::StrCat(parts[i].file.path(), ": tensor ", Quoted(tensor.name),
                                                     " is there twice",
                                                     twin->second.part == i ? "" : absl::StrCat(", also in ", there)));
    }
  }
  contents->metadata = std::move(parts[0].header.metadata);
  contents->version = parts[0].header.version;
  for (Part& part : parts) contents->files.push_back(std::move(part.file));
  if (contents->metadata.Has(kSplitTensors)) {
    ASSIGN_OR_RETURN(const int64_t expected, contents->metadata.Int(kSplitTensors, 0, kMaxTensors));
    if (static_cast<size_t>(expected) != total) {
      return contents->metadata.Wrong(
          kSplitTensors, absl::StrCat("is ", expected, ", expected ", total, ", as many as all parts have"));
    }
  }
  return std::unique_ptr<GgufFile>(new GgufFile(path, std::move(contents)));
}

const GgufMetadata& GgufFile::metadata() const { return contents_->metadata; }

uint32_t GgufFile::version() const { return contents_->version; }

std::vector<std::string> GgufFile::parts() const {
  std::vector<std::string> paths;
  for (const MappedFile& file : contents_->files) paths.push_back(file.path());
  return paths;
}

const GgufTensor* GgufFile::FindTensor(absl::string_view name) const {
  const auto found = contents_->tensors.find(name);
  return found == contents_->tensors.end() ? nullptr : &found->second.tensor;
}

std::vector<std::string> GgufFile::Names() const {
  std::vector<std::string> names;
  for (const auto& entry : contents_->tensors) names.push_back(entry.first);
  return names;
}

const TensorView* GgufFile::Find(absl::string_view name) const {
  const auto found = contents_->tensors.find(name);
  if (found == contents_->tensors.end()) return nullptr;
  Entry& entry = found->second;
  if (DTypeOf(entry.tensor.type).has_value()) return &entry.view;
  const std::lock_guard<std::mutex> lock(contents_->mutex);
  if (entry.view.data == nullptr) {
    entry.floats = FloatsOf(entry.tensor);
    entry.view = entry.floats.view();
  }
  return &entry.view;
}

std::optional<TensorInfo> GgufFile::Info(absl::string_view name) const {
  const GgufTensor* const tensor = FindTensor(name);
  if (tensor == nullptr) return std::nullopt;
  return TensorInfo{DTypeOf(tensor->type).value_or(DType::kF32), tensor->shape};
}

std::optional<StoredForm> GgufFile::Stored(absl::string_view name) const {
  const GgufTensor* const tensor = FindTensor(name);
  if (tensor == nullptr || DTypeOf(tensor->type).has_value()) return std::nullopt;
  return StoredForm{std::string(Name(tensor->type)), static_cast<int64_t>(tensor->bytes.size())};
}

HeldTensor GgufFile::Read(absl::string_view name) const {
  const GgufTensor* const tensor = FindTensor(name);
  Check(tensor != nullptr, "the name of a tensor of the file");
  if (DTypeOf(tensor->type).has_value()) return {*Find(name), Tensor()};
  Tensor floats = FloatsOf(*tensor);
  const TensorView view = floats.view();
  return {view, std::move(floats)};
}

std::shared_ptr<const void> GgufFile::Memory() const { return contents_; }

}  // namespace kvm
