#ifndef KVM_IO_TENSORS_TENSOR_STREAM_H_
#define KVM_IO_TENSORS_TENSOR_STREAM_H_

// What the writers of tensor files take: tensors that are read, and perhaps converted, one after the other while the
// file grows, so that one at a time is in memory; and a way to stop.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

struct NamedTensorView {
  std::string name;
  TensorView tensor;
};

// How a model's tensors are written.
struct TensorWriting {
  std::optional<DType> dtype;       // kF32, kBF16 or kF16; without one they stay as they are
  std::function<bool()> cancelled;  // asked between pieces of work: true ends it with Cancelled. May be empty
};

struct TensorStream {
  struct Entry {
    std::string name;
    TensorInfo info;
  };
  std::vector<Entry> tensors;
  // The tensor of that name, as `tensors` says of it. InvalidArgument for one that cannot be had as its dtype.
  std::function<absl::StatusOr<HeldTensor>(const std::string& name)> read;
  std::function<bool()> cancelled;  // see TensorWriting
};

// Tensors in memory, which must outlive the stream. Where a name is there twice, reading gives any of the two.
TensorStream StreamViews(const std::vector<NamedTensorView>& views);

// Tensors of a source, which must outlive the stream and have them all.
TensorStream StreamWeights(const WeightSource& weights, const std::vector<std::string>& names,
                           const TensorWriting& writing);

// Cancelled if `cancelled`, which may be empty, says so.
absl::Status CheckNotCancelled(const std::function<bool()>& cancelled);

// Appends bytes piece by piece, asking between the pieces.
absl::Status AppendPieces(absl::string_view bytes, const std::function<bool()>& cancelled, AtomicFile* file);

}  // namespace kvm

#endif  // KVM_IO_TENSORS_TENSOR_STREAM_H_
