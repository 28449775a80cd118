#include "kvm/io/tensors/tensor_stream.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tensors/cast.h"

namespace kvm {
namespace {

// A fraction of a second of any disk.
constexpr size_t kPieceBytes = size_t{8} << 20;

}  // namespace

TensorStream StreamViews(const std::vector<NamedTensorView>& views) {
  TensorStream stream;
  std::map<std::string, TensorView> by_name;
  for (const NamedTensorView& view : views) {
    stream.tensors.push_back({view.name, {view.tensor.dtype, view.tensor.shape}});
    by_name[view.name] = view.tensor;
  }
  stream.read = [by_name = std::move(by_name)](const std::string& name) -> absl::StatusOr<HeldTensor> {
    return HeldTensor{by_name.at(name), Tensor()};
  };
  return stream;
}

TensorStream StreamWeights(const WeightSource& weights, const std::vector<std::string>& names,
                           const TensorWriting& writing) {
  TensorStream stream;
  const std::optional<DType> dtype = writing.dtype;
  for (const std::string& name : names) {
    TensorInfo info = *weights.Info(name);
    info.dtype = dtype.value_or(info.dtype);
    stream.tensors.push_back({name, std::move(info)});
  }
  stream.read = [&weights, dtype](const std::string& name) -> absl::StatusOr<HeldTensor> {
    HeldTensor tensor = weights.Read(name);
    if (!dtype.has_value() || tensor.view.dtype == *dtype) return tensor;
    ASSIGN_OR_RETURN(Tensor cast, CastTensor(tensor.view, *dtype,
                                             absl::StrCat(weights.Description(), ": ", weights.NameInFile(name))));
    const TensorView view = cast.view();
    return HeldTensor{view, std::move(cast)};
  };
  stream.cancelled = writing.cancelled;
  return stream;
}

absl::Status CheckNotCancelled(const std::function<bool()>& cancelled) {
  return cancelled && cancelled() ? absl::CancelledError("interrupted") : absl::OkStatus();
}

absl::Status AppendPieces(absl::string_view bytes, const std::function<bool()>& cancelled, AtomicFile* file) {
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kPieceBytes))) {
    RETURN_IF_ERROR(CheckNotCancelled(cancelled));
    RETURN_IF_ERROR(file->Append(bytes.substr(0, kPieceBytes)));
  }
  return absl::OkStatus();
}

}  // namespace kvm
