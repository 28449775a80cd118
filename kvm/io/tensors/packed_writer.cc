#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/content_hash.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tensors/model_fingerprint.h"
#include "kvm/io/tensors/packed.pb.h"
#include "kvm/io/tensors/packed_file.h"
#include "kvm/io/tensors/packed_layout.h"
#include "kvm/io/tensors/tensor_stream.h"
#include "kvm/kernels/cpu/matmul.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/panels_view.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/weights/parameters.h"

namespace kvm {
namespace {

constexpr char kEmbedding[] = "transformer.wte.weight";

// Whether products read the tensor. Where this guesses wrong a model copies the tensor and is as right as before.
bool IsMultipliedWith(const std::string& name, const TensorInfo& info) {
  return info.shape.size() == 2 && absl::EndsWith(name, ".weight") && name != kEmbedding;
}

std::string LittleEndian(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return bytes;
}

std::string Padding(uint64_t position) { return std::string(AlignPacked(position) - position, '\0'); }

// The source's panels of a tensor where these are int8, else null.
const PanelsView* Int8Panels(const WeightSource& weights, const std::string& name) {
  const PanelsView* const panels = weights.FindPanels(name);
  return panels != nullptr && panels->storage == DType::kI8 ? panels : nullptr;
}

// Appends an entry for the tensor behind the entries that are there.
absl::Status AddTensor(const std::string& name, const TensorInfo& info, PackedTensor::Layout layout,
                       const std::string& path, PackedHeader* header) {
  uint64_t end = 0;
  if (header->tensors_size() > 0) {
    const PackedTensor& last = header->tensors(header->tensors_size() - 1);
    end = last.offset() + last.size();
  }
  if (!IsPackable(info.dtype) && !(info.dtype == DType::kI8 && layout == PackedTensor::PANELS)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", Quoted(name), " has dtype ", Name(info.dtype),
                                                   "; packed models hold F32, BF16 and F16: convert it with "
                                                   "--dtype=f32"));
  }
  PackedTensor tensor;
  tensor.set_name(name);
  tensor.set_layout(layout);
  tensor.set_dtype(std::string(Name(info.dtype)));
  for (const int64_t extent : info.shape) tensor.add_shape(extent);
  tensor.set_offset(AlignPacked(end));
  ASSIGN_OR_RETURN(const PackedSize size, SizeOfPacked(tensor, path));
  tensor.set_size(size.bytes);
  *header->add_tensors() = std::move(tensor);
  return absl::OkStatus();
}

// `int8_panels` gives what Int8Panels does, or null where a tensor is to be written as something else.
absl::StatusOr<PackedHeader> HeaderOf(const StackSpec& spec, const TensorStream& tensors,
                                      absl::FunctionRef<const PanelsView*(const std::string&)> int8_panels,
                                      const std::map<std::string, std::string>& config, const std::string& path) {
  PackedHeader header;
  header.set_version(kPackedVersion);
  *header.mutable_spec() = spec;
  ASSIGN_OR_RETURN(const uint64_t fingerprint, ModelFingerprint(spec, tensors));
  header.set_fingerprint(fingerprint);
  for (const auto& [name, info] : tensors.tensors) {
    if (int8_panels(name) != nullptr) {
      // Of an embedding too: lookups and a tied head read the same panels.
      RETURN_IF_ERROR(AddTensor(name, {DType::kI8, info.shape}, PackedTensor::PANELS, path, &header));
      continue;
    }
    const bool panels = IsMultipliedWith(name, info);
    RETURN_IF_ERROR(AddTensor(name, info, panels ? PackedTensor::PANELS : PackedTensor::ROWS, path, &header));
    if (name == kEmbedding && spec.tied_head()) {
      RETURN_IF_ERROR(AddTensor(name, info, PackedTensor::PANELS, path, &header));
    }
  }
  for (const auto& [key, value] : config) {
    PackedConfigField* field = header.add_config();
    field->set_key(key);
    field->set_value(value);
  }
  return header;
}

}  // namespace

absl::Status WritePackedModel(const std::string& path, const StackSpec& spec, const WeightSource& weights,
                              const std::map<std::string, std::string>& config, const TensorWriting& writing) {
  RETURN_IF_ERROR(CheckWeights(spec, weights));
  const TensorStream tensors = StreamWeights(weights, weights.Names(), writing);
  const auto int8_panels = [&](const std::string& name) {
    return writing.dtype.has_value() ? nullptr : Int8Panels(weights, name);
  };
  ASSIGN_OR_RETURN(const PackedHeader header, HeaderOf(spec, tensors, int8_panels, config, path));
  const std::string bytes = header.SerializeAsString();
  if (bytes.size() > kMaxPackedHeader) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the table of tensors takes ", bytes.size(),
                                                   " bytes; a header holds at most ", kMaxPackedHeader));
  }
  ContentHash hash;
  hash.Add(bytes);
  ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  RETURN_IF_ERROR(
      file.Append(absl::StrCat(kPackedMagic, LittleEndian(bytes.size()), LittleEndian(hash.Value()), bytes)));
  RETURN_IF_ERROR(file.Append(Padding(kPackedFrame + bytes.size())));
  uint64_t end = 0;
  for (const PackedTensor& tensor : header.tensors()) {
    RETURN_IF_ERROR(file.Append(Padding(end)));
    RETURN_IF_ERROR(CheckNotCancelled(writing.cancelled));
    HeldTensor held;
    PackedMatrix packed;  // owns what `data` shows when it is a matrix made here
    const void* data = nullptr;
    if (const PanelsView* const int8 = int8_panels(tensor.name()); int8 != nullptr) {
      data = int8->data;
    } else {
      ASSIGN_OR_RETURN(held, tensors.read(tensor.name()));
      data = held.view.data;
      if (tensor.layout() == PackedTensor::PANELS) {
        packed = PackedMatrix::Pack(held.view, PanelStorage(held.view.dtype));
        data = packed.view().data;
      }
    }
    RETURN_IF_ERROR(AppendPieces({static_cast<const char*>(data), tensor.size()}, writing.cancelled, &file));
    end = tensor.offset() + tensor.size();
  }
  return file.Commit();
}

}  // namespace kvm
