#include "kvm/state/snapshot/snapshot_layout.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/checked_parse.h"
#include "kvm/base/file/content_hash.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/kernels/dtype.h"
#include "kvm/state/finite_tensors.h"

namespace kvm {
namespace {

constexpr int kMaxRank = 64;

// Bytes of a section that are checked before the next ones: a multiple of all elements' sizes.
constexpr size_t kPiece = 128 << 10;

constexpr char kDamaged[] = "its hash is not the one that the header states; it is damaged";

absl::Status BadHeader(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": snapshot header: ", why));
}

absl::Status BadSection(const std::string& path, absl::string_view name, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": snapshot section ", Printable(name), ": ", why));
}

uint64_t ReadUint64(absl::string_view bytes) {
  uint64_t value;  // machines that map tensors are little-endian
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

uint64_t HashOf(absl::string_view bytes) {
  ContentHash hash;
  hash.Add(bytes);
  return hash.Value();
}

bool IsZero(absl::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == '\0'; });
}

// The header's bytes, once the frame around them is sound.
absl::StatusOr<absl::string_view> FindHeader(absl::string_view file, const std::string& path) {
  if (!absl::StartsWith(file, kSnapshotMagic)) {
    return BadHeader(path, "the file does not begin with KVMSNAP, it is no snapshot");
  }
  if (file.size() < kSnapshotFrame) {
    return BadHeader(path, absl::StrCat("the file has ", file.size(), " bytes; expected at least ", kSnapshotFrame));
  }
  const uint64_t version = ReadUint64(file.substr(8));
  if (version != kSnapshotVersion) {
    absl::Status other = BadHeader(path, absl::StrCat("format version ", version, "; expected ", kSnapshotVersion));
    // A newer one may be intact: that is for a newer reader to say.
    return version > kSnapshotVersion ? absl::UnimplementedError(other.message()) : other;
  }
  const uint64_t length = ReadUint64(file.substr(16));
  const uint64_t most = std::min<uint64_t>(kMaxSnapshotHeader, file.size() - kSnapshotFrame);
  if (length > most) return BadHeader(path, absl::StrCat(length, " bytes; expected at most ", most));
  const absl::string_view header = file.substr(kSnapshotFrame, length);
  if (HashOf(header) != ReadUint64(file.substr(24))) {
    return BadHeader(path, "its hash is not the one that the file states; it is damaged");
  }
  return header;
}

// The bytes of elements of `dtype`; false when the shape cannot be that of a section.
bool SizeOfSection(const SnapshotSection& section, DType dtype, uint64_t* bytes) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  if (section.shape_size() > kMaxRank) return false;
  *bytes = static_cast<uint64_t>(SizeOf(dtype));
  for (const int64_t extent : section.shape()) {
    if (extent < 1 || *bytes > kMax / static_cast<uint64_t>(extent)) return false;
    *bytes *= static_cast<uint64_t>(extent);
  }
  return true;
}

absl::Status CheckSectionEntry(const SnapshotSection& section, const std::string& path, uint64_t data_size,
                               uint64_t* end) {
  const auto refuse = [&](auto... why) { return BadSection(path, section.name(), absl::StrCat(why...)); };
  DType dtype;
  if (!ParseDType(section.dtype(), &dtype)) return refuse("unknown dtype ", Printable(section.dtype()));
  uint64_t bytes;
  if (!SizeOfSection(section, dtype, &bytes)) {
    return refuse("shape ", section.shape_size() > kMaxRank ? "of too many extents" : ToString(section.shape()),
                  "; expected extents of at least 1 whose bytes 63 bits can count");
  }
  if (section.size() != bytes) {
    return refuse(section.size(), " bytes; expected ", bytes, " for ", section.dtype(), " ", ToString(section.shape()));
  }
  if (section.offset() != AlignSnapshot(*end)) {
    return refuse("begins at byte ", section.offset(), " of the data; expected ", AlignSnapshot(*end));
  }
  if (section.offset() > data_size || bytes > data_size - section.offset()) {
    return refuse("ends beyond the data, which has ", data_size, " bytes: the file is cut short");
  }
  *end = section.offset() + bytes;
  return absl::OkStatus();
}

// Whether a section has this name, this dtype and one extent, `count`, or any when that is negative.
bool IsVector(const SnapshotSection& section, absl::string_view name, DType dtype, int64_t count) {
  return section.name() == name && section.dtype() == Name(dtype) && section.shape_size() == 1 &&
         (count < 0 || section.shape(0) == count);
}

absl::Status CheckHeader(const SnapshotLayout& layout, uint64_t data_size, const std::string& path) {
  const SnapshotHeader& header = layout.header;
  if (header.position() < 0) return BadHeader(path, absl::StrCat("position ", header.position()));
  uint64_t end = 0;
  for (const SnapshotSection* section : layout.Sections()) {
    RETURN_IF_ERROR(CheckSectionEntry(*section, path, data_size, &end));
  }
  if (end != data_size) {
    return BadHeader(path, absl::StrCat(data_size - end, " bytes follow the last section; expected none"));
  }
  if (header.has_tokens() ? !IsVector(header.tokens(), "tokens", DType::kI32, header.position())
                          : header.position() != 0) {
    return BadSection(path, "tokens",
                      absl::StrCat("expected that name and I32 [", header.position(), "], as many as the position"));
  }
  if (header.has_logits() && !IsVector(header.logits(), "logits", DType::kF32, -1)) {
    return BadSection(path, "logits", "expected that name, F32 and one extent");
  }
  if (header.has_sampler()) {
    const absl::Status valid = ValidateSamplerOptions(ToSamplerState(header.sampler()).options);
    if (!valid.ok()) return BadHeader(path, absl::StrCat("sampler: ", valid.message()));
  }
  return absl::OkStatus();
}

absl::string_view BytesOf(const SnapshotSection& section, const SnapshotLayout& layout, absl::string_view file) {
  return file.substr(layout.data_begin + section.offset(), section.size());
}

}  // namespace

std::vector<const SnapshotSection*> SnapshotLayout::Sections() const {
  std::vector<const SnapshotSection*> sections;
  if (header.has_tokens()) sections.push_back(&header.tokens());
  if (header.has_logits()) sections.push_back(&header.logits());
  for (const SnapshotSection& section : header.tensors()) sections.push_back(&section);
  return sections;
}

absl::StatusOr<SnapshotLayout> ParseSnapshot(absl::string_view file, const std::string& path) {
  ASSIGN_OR_RETURN(const absl::string_view bytes, FindHeader(file, path));
  SnapshotLayout layout;
  if (!ParseChecked(bytes, &layout.header)) {
    return BadHeader(path, "it is no SnapshotHeader");
  }
  layout.header_end = kSnapshotFrame + bytes.size();
  // Without sections the file ends with the header.
  layout.data_begin = layout.Sections().empty() ? layout.header_end : AlignSnapshot(layout.header_end);
  if (layout.data_begin > file.size()) return BadHeader(path, "the file is cut short: it ends before the data");
  RETURN_IF_ERROR(CheckHeader(layout, file.size() - layout.data_begin, path));
  return layout;
}

SamplerState ToSamplerState(const SnapshotSampler& sampler) {
  SamplerState state;
  state.options.temperature = sampler.temperature();
  state.options.top_k = sampler.top_k();
  state.options.top_p = sampler.top_p();
  state.options.min_p = sampler.min_p();
  state.options.repetition_penalty = sampler.repetition_penalty();
  state.options.seed = sampler.seed();
  state.draws = sampler.draws();
  return state;
}

TensorView ViewOf(const SnapshotSection& section, const SnapshotLayout& layout, absl::string_view file) {
  TensorView view;
  ParseDType(section.dtype(), &view.dtype);
  view.shape.assign(section.shape().begin(), section.shape().end());
  view.data = BytesOf(section, layout, file).data();
  return view;
}

absl::Status CheckSection(const SnapshotSection& section, const SnapshotLayout& layout, absl::string_view file,
                          const std::string& path) {
  if (HashOf(BytesOf(section, layout, file)) == section.hash()) return absl::OkStatus();
  return BadSection(path, section.name(), kDamaged);
}

absl::Status CheckData(const SnapshotLayout& layout, absl::string_view file, const std::string& path,
                       ThreadPool* pool) {
  const std::vector<const SnapshotSection*> sections = layout.Sections();
  const size_t first_tensor = sections.size() - static_cast<size_t>(layout.header.tensors_size());
  std::vector<absl::Status> found(sections.size());
  const auto check = [&](int64_t i) {
    const size_t index = static_cast<size_t>(i);
    const SnapshotSection& section = *sections[index];
    const uint64_t begin = layout.data_begin + section.offset();
    const uint64_t end_before = index == 0
                                    ? layout.header_end
                                    : layout.data_begin + sections[index - 1]->offset() + sections[index - 1]->size();
    if (!IsZero(file.substr(end_before, begin - end_before))) {
      found[index] = BadSection(path, section.name(), "the bytes before it are not zero; the file is damaged");
      return;
    }
    // Piece by piece, so that what is hashed is still at hand.
    const absl::string_view bytes = BytesOf(section, layout, file);
    TensorView view = ViewOf(section, layout, file);
    ContentHash hash;
    bool finite = true;
    for (size_t at = 0; at < bytes.size(); at += kPiece) {
      const absl::string_view piece = bytes.substr(at, kPiece);
      hash.Add(piece);
      if (index < first_tensor) continue;
      view.shape = {static_cast<int64_t>(piece.size()) / SizeOf(view.dtype)};
      view.data = piece.data();
      finite = finite && AllFinite(view);
    }
    if (hash.Value() != section.hash()) {
      found[index] = BadSection(path, section.name(), kDamaged);
    } else if (!finite) {
      const absl::Status why = CheckFinite({section.name(), ViewOf(section, layout, file)});
      found[index] = absl::Status(why.code(), absl::StrCat(path, ": ", Printable(why.message(), 1000)));
    }
  };
  const int64_t count = static_cast<int64_t>(sections.size());
  if (pool != nullptr) {
    pool->ParallelFor(count, check);
  } else {
    for (int64_t i = 0; i < count; ++i) check(i);
  }
  for (absl::Status& status : found) RETURN_IF_ERROR(std::move(status));
  return absl::OkStatus();
}

}  // namespace kvm
