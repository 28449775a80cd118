// The writing half of torch_file.h.

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvm/base/check.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/torch/pickle_opcodes.h"
#include "kvm/io/torch/torch_file.h"
#include "kvm/io/torch/torch_storage.h"
#include "kvm/io/torch/zip_writer.h"

namespace kvm {
namespace {

constexpr char kFolder[] = "archive/";
constexpr char kVersion[] = "3\n";  // of the archive's layout, as torch.save writes it

void Put(PickleOpcode opcode, std::string* out) { out->push_back(static_cast<char>(opcode)); }

void PutNumber(uint64_t number, size_t size, std::string* out) {
  for (size_t i = 0; i < size; ++i) out->push_back(static_cast<char>(number >> (8 * i) & 0xff));
}

void PutText(absl::string_view text, std::string* out) {
  Put(PickleOpcode::kBinUnicode, out);
  PutNumber(text.size(), 4, out);
  absl::StrAppend(out, text);
}

// A nonnegative whole number in the shortest form, as Python chooses it.
void PutInt(int64_t number, std::string* out) {
  const uint64_t bits = static_cast<uint64_t>(number);
  if (bits <= 0xff) {
    Put(PickleOpcode::kBinInt1, out);
    PutNumber(bits, 1, out);
  } else if (bits <= 0xffff) {
    Put(PickleOpcode::kBinInt2, out);
    PutNumber(bits, 2, out);
  } else if (bits <= 0x7fffffff) {
    Put(PickleOpcode::kBinInt, out);
    PutNumber(bits, 4, out);
  } else {
    // The fewest bytes that leave the sign bit clear.
    size_t size = 4;
    while (bits >> (8 * size - 1) != 0) ++size;
    Put(PickleOpcode::kLong1, out);
    PutNumber(size, 1, out);
    PutNumber(bits, size, out);
  }
}

void PutGlobal(absl::string_view module, absl::string_view name, std::string* out) {
  Put(PickleOpcode::kGlobal, out);
  absl::StrAppend(out, module, "\n", name, "\n");
}

void PutTuple(const Shape& numbers, std::string* out) {
  Put(PickleOpcode::kMark, out);
  for (const int64_t number : numbers) PutInt(number, out);
  Put(PickleOpcode::kTuple, out);
}

// torch._utils._rebuild_tensor_v2(storage `key`, 0, shape, strides, False, OrderedDict())
void PutTensor(const TensorInfo& tensor, absl::string_view key, std::string* out) {
  PutGlobal("torch._utils", "_rebuild_tensor_v2", out);
  Put(PickleOpcode::kMark, out);
  Put(PickleOpcode::kMark, out);
  PutText("storage", out);
  PutGlobal("torch", StorageClass(tensor.dtype), out);
  PutText(key, out);
  PutText("cpu", out);
  PutInt(NumElements(tensor.shape), out);
  Put(PickleOpcode::kTuple, out);
  Put(PickleOpcode::kBinPersId, out);
  PutInt(0, out);
  PutTuple(tensor.shape, out);
  Shape strides(tensor.shape.size(), 1);
  // As torch counts them: an extent of 0 as 1.
  for (size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<int64_t>(tensor.shape[i], 1);
  PutTuple(strides, out);
  Put(PickleOpcode::kNewFalse, out);
  PutGlobal("collections", "OrderedDict", out);
  Put(PickleOpcode::kEmptyTuple, out);
  Put(PickleOpcode::kReduce, out);
  Put(PickleOpcode::kTuple, out);
  Put(PickleOpcode::kReduce, out);
}

std::string PickleOf(const std::vector<TensorStream::Entry>& tensors) {
  std::string pickle;
  Put(PickleOpcode::kProto, &pickle);
  PutNumber(2, 1, &pickle);
  Put(PickleOpcode::kEmptyDict, &pickle);
  Put(PickleOpcode::kMark, &pickle);
  for (size_t i = 0; i < tensors.size(); ++i) {
    PutText(tensors[i].name, &pickle);
    PutTensor(tensors[i].info, absl::StrCat(i), &pickle);
  }
  Put(PickleOpcode::kSetItems, &pickle);
  Put(PickleOpcode::kStop, &pickle);
  return pickle;
}

absl::Status CheckTensors(const std::string& path, const std::vector<TensorStream::Entry>& tensors) {
  std::set<absl::string_view> names;
  for (const TensorStream::Entry& tensor : tensors) {
    const auto fail = [&](const std::string& why) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", Quoted(tensor.name), ": ", why));
    };
    if (!names.insert(tensor.name).second) return fail("is there twice");
    if (FindInvalidUtf8(tensor.name) != tensor.name.size()) return fail("its name is not UTF-8");
    if (StorageClass(tensor.info.dtype).empty()) {
      return fail(absl::StrCat("has dtype ", Name(tensor.info.dtype), ", for which PyTorch has no storage class"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteTorchFile(const std::string& path, const std::vector<NamedTensorView>& tensors) {
  return WriteTorchStream(path, StreamViews(tensors));
}

absl::Status WriteTorchStream(const std::string& path, const TensorStream& stream) {
  const std::vector<TensorStream::Entry>& tensors = stream.tensors;
  RETURN_IF_ERROR(CheckTensors(path, tensors));
  ZipWriterOptions options;
  options.cancelled = stream.cancelled;
  ASSIGN_OR_RETURN(ZipWriter zip, ZipWriter::Create(path, options));
  RETURN_IF_ERROR(zip.Add(absl::StrCat(kFolder, "data.pkl"), PickleOf(tensors)));
  RETURN_IF_ERROR(zip.Add(absl::StrCat(kFolder, "byteorder"), "little"));
  for (size_t i = 0; i < tensors.size(); ++i) {
    ASSIGN_OR_RETURN(const HeldTensor tensor, stream.read(tensors[i].name));
    const size_t size = static_cast<size_t>(tensor.view.byte_size());
    Check(size == 0 || tensor.view.data != nullptr, "data of every tensor that has elements");
    RETURN_IF_ERROR(zip.Add(absl::StrCat(kFolder, "data/", i), {static_cast<const char*>(tensor.view.data), size}));
  }
  RETURN_IF_ERROR(zip.Add(absl::StrCat(kFolder, "version"), kVersion));
  return zip.Commit();
}

}  // namespace kvm
