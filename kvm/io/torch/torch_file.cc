#include "kvm/io/torch/torch_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/file/file_kind.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/torch/torch_storage.h"

namespace kvm {
namespace {

constexpr absl::string_view kPickleName = "data.pkl";
constexpr absl::string_view kTorchScriptName = "constants.pkl";
constexpr absl::string_view kDataFolder = "data/";
// Readers may copy or write out what they find: tensors that share storages must not let a small file become a huge
// model.
constexpr uint64_t kMaxSharing = 16;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are used as they lie in the file: little-endian");

// Copies elements into row-major order. `source` is the tensor's first element.
void CopyStrided(const StoredTensor& stored, const char* source, char* out) {
  const size_t element = static_cast<size_t>(SizeOf(stored.dtype));
  std::vector<int64_t> index(stored.shape.size(), 0);
  const int64_t count = NumElements(stored.shape);
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(out + static_cast<size_t>(i) * element, source + static_cast<size_t>(at) * element, element);
    // The next index, as an odometer counts.
    for (size_t axis = index.size(); axis-- > 0;) {
      at += stored.strides[axis];
      if (++index[axis] < stored.shape[axis]) break;
      at -= stored.strides[axis] * stored.shape[axis];
      index[axis] = 0;
    }
  }
}

// Whole numbers become their two's complement, as PyTorch negates them.
template <typename Unsigned>
void NegateWhole(Tensor* tensor) {
  char* const bytes = static_cast<char*>(tensor->bytes());
  for (int64_t i = 0; i < NumElements(tensor->shape()); ++i) {
    Unsigned value;
    std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof(value)), sizeof(value));
    value = static_cast<Unsigned>(0 - value);
    std::memcpy(bytes + i * static_cast<int64_t>(sizeof(value)), &value, sizeof(value));
  }
}

void Negate(Tensor* tensor) {
  const int64_t size = SizeOf(tensor->dtype());
  switch (tensor->dtype()) {
    case DType::kF64:
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      // The sign is the last byte's highest bit.
      for (int64_t i = 0; i < NumElements(tensor->shape()); ++i) {
        static_cast<uint8_t*>(tensor->bytes())[(i + 1) * size - 1] ^= 0x80;
      }
      return;
    default:
      break;
  }
  switch (size) {
    case 1:
      return NegateWhole<uint8_t>(tensor);
    case 2:
      return NegateWhole<uint16_t>(tensor);
    case 4:
      return NegateWhole<uint32_t>(tensor);
    default:
      return NegateWhole<uint64_t>(tensor);
  }
}

absl::Status RefuseTorchScript(const std::string& path) {
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": a TorchScript program, expected a checkpoint with tensors alone (torch.save of a state_dict)"));
}

bool IsTorchScript(const std::vector<absl::string_view>& names) {
  return std::any_of(names.begin(), names.end(), [](absl::string_view name) {
    const size_t slash = name.find('/');
    return slash != absl::string_view::npos && name.substr(slash + 1) == kTorchScriptName;
  });
}

// The folder within the archive that everything lies in, with its slash.
absl::StatusOr<absl::string_view> FindFolder(absl::Span<const ZipEntry> entries, const std::string& path) {
  for (const ZipEntry& entry : entries) {
    const size_t slash = entry.name.find('/');
    if (slash != absl::string_view::npos && entry.name.substr(slash + 1) == kPickleName) {
      return entry.name.substr(0, slash + 1);
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": a zip archive without an entry NAME/", kPickleName,
                                                 ", expected a PyTorch checkpoint (torch.save)"));
}

using EntriesByName = absl::flat_hash_map<absl::string_view, const ZipEntry*>;

// Everything but the tensors' data, of which entry `name` tells.
absl::Status CheckSmallEntries(absl::Span<const ZipEntry> entries, absl::string_view folder, const std::string& path) {
  for (const ZipEntry& entry : entries) {
    if (!absl::StartsWith(entry.name, folder)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": entry ", Quoted(entry.name), " lies outside the folder ",
                                                     Quoted(folder), " of the checkpoint"));
    }
    const absl::string_view name = entry.name.substr(folder.size());
    if (name == kTorchScriptName) return RefuseTorchScript(path);
    if (!absl::StartsWith(name, kDataFolder)) RETURN_IF_ERROR(CheckSum(entry, path));
    if (name == "byteorder" && entry.data != "little") {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": byteorder is ", Quoted(entry.data), ", expected \"little\""));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TorchFile>> TorchFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  const absl::string_view bytes(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
  const absl::string_view start = bytes.substr(0, kFileKindBytes);
  if (DetectFileKind(start) != FileKind::kZip) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a PyTorch checkpoint, which is a zip archive", LooksLike(start)));
  }
  absl::StatusOr<std::vector<ZipEntry>> archive = ReadZipArchive(mapped.bytes(), path);
  // Said first: such a program is full of entries that a checkpoint must not have.
  if (!archive.ok() && IsTorchScript(ListZipNames(mapped.bytes()))) return RefuseTorchScript(path);
  ASSIGN_OR_RETURN(std::vector<ZipEntry> entries, std::move(archive));
  ASSIGN_OR_RETURN(const absl::string_view folder, FindFolder(entries, path));
  RETURN_IF_ERROR(CheckSmallEntries(entries, folder, path));
  EntriesByName by_name;
  for (const ZipEntry& entry : entries) by_name[entry.name.substr(folder.size())] = &entry;
  ASSIGN_OR_RETURN(std::vector<StoredTensor> stored, ReadTensorPickle(by_name[kPickleName]->data, path));

  auto contents = std::make_shared<Contents>(std::move(mapped));
  Contents& kept = *contents;
  std::unique_ptr<TorchFile> file(new TorchFile(std::move(contents)));
  uint64_t total = 0;
  uint64_t copied = 0;
  for (StoredTensor& tensor : stored) {
    const auto fail = [&](const std::string& why) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", Quoted(tensor.name), ": ", why));
    };
    const auto found = by_name.find(absl::StrCat(kDataFolder, tensor.key));
    if (found == by_name.end()) return fail(absl::StrCat("no entry ", Quoted(absl::StrCat(kDataFolder, tensor.key))));
    const absl::string_view data = found->second->data;
    if (data.size() != tensor.storage_bytes) {
      return fail(absl::StrCat("entry ", Quoted(found->second->name), " has ", data.size(), " bytes, expected ",
                               tensor.storage_bytes));
    }
    const char* first = data.data() + tensor.offset * SizeOf(tensor.dtype);
    TensorView view = {tensor.dtype, tensor.shape, first};
    if (!tensor.IsContiguous() || tensor.negated) {
      // Expanded tensors, and many views of one storage, can be far larger than the file.
      copied += static_cast<uint64_t>(view.byte_size());
      if (static_cast<uint64_t>(view.byte_size()) > data.size() || copied > bytes.size()) {
        return fail(absl::StrCat("shape ", ToString(tensor.shape), " with strides ", ToString(tensor.strides),
                                 " must be copied and takes more room than the file; expected contiguous tensors"));
      }
      kept.copies.emplace_back(tensor.dtype, tensor.shape);
      CopyStrided(tensor, first, static_cast<char*>(kept.copies.back().bytes()));
      if (tensor.negated) Negate(&kept.copies.back());
      view.data = kept.copies.back().bytes();
    }
    total += static_cast<uint64_t>(view.byte_size());
    if (total > kMaxSharing * bytes.size()) {
      return fail(absl::StrCat("up to here the tensors, which share storages, take ", total, " bytes, more than ",
                               kMaxSharing, " times the file's ", bytes.size()));
    }
    file->tensors_.emplace(tensor.name, std::move(view));
  }
  file->entries_ = std::move(entries);
  return file;
}

std::vector<std::string> TorchFile::Names() const {
  std::vector<std::string> names;
  for (const auto& entry : tensors_) names.push_back(entry.first);
  return names;
}

const TensorView* TorchFile::Find(absl::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

absl::Status TorchFile::CheckContents(const std::function<bool()>& cancelled) const {
  for (const ZipEntry& entry : entries_) {
    RETURN_IF_ERROR(CheckNotCancelled(cancelled));
    RETURN_IF_ERROR(CheckSum(entry, file_->path()));
  }
  return absl::OkStatus();
}

}  // namespace kvm
