#ifndef KVM_STATE_STATE_FIELDS_H_
#define KVM_STATE_STATE_FIELDS_H_

// A state taken apart into named numbers and tensors, as they lie in memory, and put together again. Every part of a
// state says what it consists of through a StateWriter and takes the same back through a StateReader:
//
//   void Window::Save(const StateWriter& out) const {
//     out.Number("begin", begin_);
//     out.Tensor("keys", DType::kF32, {count_, dim_}, keys_.data());
//   }
//   absl::Status Window::Restore(const StateReader& in, int64_t end) {
//     ASSIGN_OR_RETURN(begin_, in.Number("begin", 0, end));
//     ...
//     return in.Tensor("keys", DType::kF32, {count_, dim_}, keys_.data());
//   }

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/tensor.h"

namespace kvm {

struct StateNumber {
  std::string name;
  int64_t value = 0;
};

// A tensor of a state, borrowed: it shows the state's own memory, or a file's.
struct StateTensor {
  std::string name;
  TensorView view;
};

// What a state consists of, in the order in which it was written. Valid until the state changes.
struct StateFields {
  std::vector<StateNumber> numbers;
  std::vector<StateTensor> tensors;

  // Of all tensors together: ByteSize() of the state.
  int64_t ByteSize() const;
};

// Adds to a StateFields, every name under a prefix.
class StateWriter {
 public:
  explicit StateWriter(StateFields* fields, std::string prefix = "") : fields_(fields), prefix_(std::move(prefix)) {}

  // A writer for a part: its names begin with "name.".
  StateWriter Part(absl::string_view name) const;

  void Number(absl::string_view name, int64_t value) const;
  // `data`: dense, not copied. A tensor without elements is left out, and its data may be null.
  void Tensor(absl::string_view name, DType dtype, Shape shape, const void* data) const;
  // The same of float32 in one dimension.
  void Floats(absl::string_view name, absl::Span<const float> values) const;

 private:
  StateFields* fields_;
  std::string prefix_;
};

// Takes from a StateFields that may come from a damaged or foreign file. Several threads may take fields at once,
// through it or its parts, as long as no two take the same.
class StateReader {
 public:
  // `fields` must outlive the reader and its parts. Every tensor has the memory that its shape says.
  explicit StateReader(const StateFields& fields);

  StateReader Part(absl::string_view name) const;

  // A field's name with all that is before it, for messages.
  std::string FullName(absl::string_view name) const;

  // InvalidArgument naming the number when it is not there once or not within [min, max].
  absl::StatusOr<int64_t> Number(absl::string_view name, int64_t min, int64_t max) const;
  // A tensor's own memory, which may be unaligned: for a shape that depends on what was read, look before allocating.
  // InvalidArgument naming the tensor when it is not there once or its dtype or shape is another. One without elements
  // is not looked for, and its data is null.
  absl::StatusOr<TensorView> View(absl::string_view name, DType dtype, const Shape& shape) const;
  // Copies a tensor's elements to `data`. Errors as View.
  absl::Status Tensor(absl::string_view name, DType dtype, const Shape& shape, void* data) const;
  // The same of float32 in one dimension.
  absl::Status Floats(absl::string_view name, absl::Span<float> values) const;
  // A tensor of int32 in one dimension with elements within [min, max]. InvalidArgument as View, and naming the element
  // that is not.
  absl::StatusOr<std::vector<int32_t>> Ints(absl::string_view name, int64_t count, int64_t min, int64_t max) const;

  // Checks that every field is there once and has been taken, through this reader or its parts. InvalidArgument naming
  // what is left. For whoever made the first reader, after all else.
  absl::Status Finish() const;

 private:
  struct Index;
  StateReader(std::shared_ptr<Index> index, std::string prefix);

  std::shared_ptr<Index> index_;
  std::string prefix_;
};

}  // namespace kvm

#endif  // KVM_STATE_STATE_FIELDS_H_
