#include "kvm/state/state_fields.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/base/status_macros.h"

namespace kvm {
namespace {

// So many names are listed of fields that are left over.
constexpr size_t kMaxNamed = 8;

bool IsEmpty(const Shape& shape) { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }

absl::Status Problem(absl::string_view kind, absl::string_view name, absl::string_view got,
                     absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("state ", kind, " ", name, ": got ", got, ", expected ", expected));
}

std::string Describe(DType dtype, const Shape& shape) { return absl::StrCat(Name(dtype), " ", ToString(shape)); }

// A field by its name, which belongs to the fields.
template <typename Field>
struct Entry {
  const Field* field = nullptr;
  int64_t times = 0;
  bool taken = false;
};
template <typename Field>
using Entries = absl::flat_hash_map<absl::string_view, Entry<Field>>;

template <typename Field>
Entries<Field> ByName(const std::vector<Field>& fields) {
  Entries<Field> entries;
  entries.reserve(fields.size());
  for (const Field& field : fields) {
    Entry<Field>& entry = entries[field.name];
    entry.field = &field;
    ++entry.times;
  }
  return entries;
}

// Takes the field that is there once.
template <typename Field>
absl::StatusOr<const Field*> Take(Entries<Field>& entries, absl::string_view kind, const std::string& name,
                                  absl::string_view expected) {
  const auto found = entries.find(name);
  if (found == entries.end()) return Problem(kind, name, "none", expected);
  if (found->second.times > 1) return Problem(kind, name, absl::StrCat(found->second.times, " of that name"), expected);
  found->second.taken = true;
  return found->second.field;
}

template <typename Field>
void AppendUntaken(const Entries<Field>& entries, std::vector<std::string>* left) {
  for (const auto& [name, entry] : entries) {
    if (!entry.taken || entry.times > 1) left->push_back(std::string(name));
  }
}

}  // namespace

int64_t StateFields::ByteSize() const {
  int64_t bytes = 0;
  for (const StateTensor& tensor : tensors) bytes += tensor.view.byte_size();
  return bytes;
}

StateWriter StateWriter::Part(absl::string_view name) const {
  return StateWriter(fields_, absl::StrCat(prefix_, name, "."));
}

void StateWriter::Number(absl::string_view name, int64_t value) const {
  fields_->numbers.push_back({absl::StrCat(prefix_, name), value});
}

void StateWriter::Tensor(absl::string_view name, DType dtype, Shape shape, const void* data) const {
  if (IsEmpty(shape)) return;
  fields_->tensors.push_back({absl::StrCat(prefix_, name), {dtype, std::move(shape), data}});
}

void StateWriter::Floats(absl::string_view name, absl::Span<const float> values) const {
  Tensor(name, DType::kF32, {static_cast<int64_t>(values.size())}, values.data());
}

struct StateReader::Index {
  Entries<StateNumber> numbers;
  Entries<StateTensor> tensors;
};

StateReader::StateReader(const StateFields& fields)
    : index_(std::make_shared<Index>(Index{ByName(fields.numbers), ByName(fields.tensors)})) {}

StateReader::StateReader(std::shared_ptr<Index> index, std::string prefix)
    : index_(std::move(index)), prefix_(std::move(prefix)) {}

StateReader StateReader::Part(absl::string_view name) const {
  return StateReader(index_, absl::StrCat(prefix_, name, "."));
}

std::string StateReader::FullName(absl::string_view name) const { return absl::StrCat(prefix_, name); }

absl::StatusOr<int64_t> StateReader::Number(absl::string_view name, int64_t min, int64_t max) const {
  const std::string full = FullName(name);
  const std::string expected = min == max ? absl::StrCat(min) : absl::StrCat(min, " to ", max);
  ASSIGN_OR_RETURN(const StateNumber* const number, Take(index_->numbers, "number", full, expected));
  if (number->value >= min && number->value <= max) return number->value;
  return Problem("number", full, absl::StrCat(number->value), expected);
}

absl::StatusOr<TensorView> StateReader::View(absl::string_view name, DType dtype, const Shape& shape) const {
  if (IsEmpty(shape)) return TensorView{dtype, shape, nullptr};
  const std::string full = FullName(name);
  const std::string expected = Describe(dtype, shape);
  ASSIGN_OR_RETURN(const StateTensor* const tensor, Take(index_->tensors, "tensor", full, expected));
  if (tensor->view.dtype == dtype && tensor->view.shape == shape) return tensor->view;
  return Problem("tensor", full, Describe(tensor->view.dtype, tensor->view.shape), expected);
}

absl::Status StateReader::Tensor(absl::string_view name, DType dtype, const Shape& shape, void* data) const {
  ASSIGN_OR_RETURN(const TensorView view, View(name, dtype, shape));
  if (view.data != nullptr) std::memcpy(data, view.data, static_cast<size_t>(view.byte_size()));
  return absl::OkStatus();
}

absl::Status StateReader::Floats(absl::string_view name, absl::Span<float> values) const {
  return Tensor(name, DType::kF32, {static_cast<int64_t>(values.size())}, values.data());
}

absl::StatusOr<std::vector<int32_t>> StateReader::Ints(absl::string_view name, int64_t count, int64_t min,
                                                       int64_t max) const {
  ASSIGN_OR_RETURN(const TensorView view, View(name, DType::kI32, {count}));
  std::vector<int32_t> values(static_cast<size_t>(count));
  if (view.data != nullptr) std::memcpy(values.data(), view.data, static_cast<size_t>(view.byte_size()));
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= min && values[i] <= max) continue;
    return Problem("tensor", FullName(name), absl::StrCat("[", i, "] is ", values[i]), absl::StrCat(min, " to ", max));
  }
  return values;
}

absl::Status StateReader::Finish() const {
  std::vector<std::string> left;
  AppendUntaken(index_->numbers, &left);
  AppendUntaken(index_->tensors, &left);
  if (left.empty()) return absl::OkStatus();
  std::sort(left.begin(), left.end());
  const size_t named = std::min(left.size(), kMaxNamed);
  const std::string more = left.size() > named ? absl::StrCat(" and ", left.size() - named, " more") : "";
  left.resize(named);
  return absl::InvalidArgumentError(
      absl::StrCat("state fields that do not belong or are there twice: ", absl::StrJoin(left, ", "), more));
}

}  // namespace kvm
