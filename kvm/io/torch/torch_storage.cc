#include "kvm/io/torch/torch_storage.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/torch/pickle.h"

namespace kvm {
namespace {

using Kind = PickleValue::Kind;

constexpr size_t kMaxExtents = 64;
constexpr int64_t kMaxBytes = std::numeric_limits<int64_t>::max();

// The globals that a pickle may name: what makes tensors, what wraps those, the classes that a wrapped one may have, a
// storage without dtype, and the dtypes: as classes of storages, and by themselves.
enum : int64_t {
  kRebuildTensorV1,
  kRebuildTensorV2,
  kRebuildTensorV3,
  kRebuildParameter,
  kRebuildParameterWithState,
  kRebuildFromType,
  kTensorClass,
  kTensorClassByModule,
  kParameterClass,
  kUntypedStorage,
  kFirstStorage
};
constexpr absl::string_view kGlobals[] = {
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._tensor._rebuild_from_type_v2",
    "torch.Tensor",
    "torch._tensor.Tensor",
    "torch.nn.parameter.Parameter",
    "torch.storage.UntypedStorage",
    "torch.DoubleStorage",
    "torch.FloatStorage",
    "torch.HalfStorage",
    "torch.BFloat16Storage",
    "torch.LongStorage",
    "torch.IntStorage",
    "torch.ShortStorage",
    "torch.CharStorage",
    "torch.ByteStorage",
    "torch.BoolStorage",
    "torch.float64",
    "torch.float32",
    "torch.float16",
    "torch.bfloat16",
    "torch.int64",
    "torch.int32",
    "torch.int16",
    "torch.int8",
    "torch.uint8",
    "torch.bool",
    "torch.uint64",
    "torch.uint32",
    "torch.uint16",
};
// Of the classes, and again of the dtypes, in the order above.
constexpr DType kDTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                             DType::kI32, DType::kI16, DType::kI8,  DType::kU8,   DType::kBool,
                             DType::kU64, DType::kU32, DType::kU16};
constexpr int64_t kNumStorages = 10;
constexpr int64_t kFirstDType = kFirstStorage + kNumStorages;
constexpr int64_t kNumDTypes = static_cast<int64_t>(std::size(kDTypes));
static_assert(static_cast<int64_t>(std::size(kGlobals)) == kFirstDType + kNumDTypes, "a name for each");

class TensorReader {
 public:
  TensorReader(const Pickle& pickle, const std::string& source) : pickle_(pickle), source_(source) {}

  absl::StatusOr<StoredTensor> Read(const PickleValue& name, const PickleValue& value) const;

 private:
  absl::Status Fail(const StoredTensor& tensor, const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat(source_, ": tensor ", Quoted(tensor.name), ": ", why));
  }
  // A call that makes a tensor: its arguments and which it is.
  struct Rebuild {
    int64_t function;
    const PickleValue* arguments;
  };
  // What lies in a parameter or an object with a class, whose further arguments (whether a gradient is wanted, hooks,
  // attributes) change no number.
  absl::StatusOr<Rebuild> Unwrap(const StoredTensor& tensor, const PickleValue& value) const;
  // What is to be done with the stored numbers: a dict of flags, None, or not there.
  absl::Status ReadMetadata(const PickleValue& value, StoredTensor* tensor) const;
  // Nonnegative whole numbers of a tuple; nothing when it is something else.
  std::optional<std::vector<int64_t>> Numbers(const PickleValue& tuple) const;
  // The id that torch gives to storages: ("storage", class, key, device, elements).
  absl::Status ReadStorage(const PickleValue& value, std::optional<DType> dtype, StoredTensor* tensor) const;
  absl::Status CheckInside(const StoredTensor& tensor) const;

  const Pickle& pickle_;
  const std::string& source_;
};

std::optional<std::vector<int64_t>> TensorReader::Numbers(const PickleValue& tuple) const {
  if (tuple.kind != Kind::kTuple || tuple.items.size() > kMaxExtents) return std::nullopt;
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < tuple.items.size(); ++i) {
    const PickleValue& item = pickle_.Item(tuple, i);
    if (item.kind != Kind::kInt || item.number < 0) return std::nullopt;
    numbers.push_back(item.number);
  }
  return numbers;
}

absl::Status TensorReader::ReadStorage(const PickleValue& value, std::optional<DType> dtype,
                                       StoredTensor* tensor) const {
  constexpr char kExpected[] = "its storage is not named as torch names storages";
  if (value.kind != Kind::kPersistentId) return Fail(*tensor, kExpected);
  const PickleValue& id = pickle_.Item(value, 0);
  if (id.kind != Kind::kTuple || id.items.size() != 5) return Fail(*tensor, kExpected);
  const PickleValue &tag = pickle_.Item(id, 0), &type = pickle_.Item(id, 1), &key = pickle_.Item(id, 2),
                    &size = pickle_.Item(id, 4);
  if (tag.kind != Kind::kString || tag.text != "storage" || type.kind != Kind::kGlobal || key.kind != Kind::kString ||
      size.kind != Kind::kInt || size.number < 0) {
    return Fail(*tensor, kExpected);
  }
  int64_t element = 1;
  if (type.number >= kFirstStorage && type.number < kFirstDType && !dtype.has_value()) {
    tensor->dtype = kDTypes[type.number - kFirstStorage];
    element = SizeOf(tensor->dtype);
  } else if (type.number == kUntypedStorage && dtype.has_value()) {
    tensor->dtype = *dtype;
  } else {
    return Fail(*tensor, kExpected);
  }
  if (size.number > kMaxBytes / element) return Fail(*tensor, absl::StrCat("a storage of ", size.number, " elements"));
  tensor->key = key.text;
  tensor->storage_bytes = static_cast<uint64_t>(size.number * element);
  return absl::OkStatus();
}

absl::Status TensorReader::CheckInside(const StoredTensor& tensor) const {
  const int64_t available = static_cast<int64_t>(tensor.storage_bytes) / SizeOf(tensor.dtype);
  const auto beyond = [&] {
    return Fail(tensor,
                absl::StrCat("shape ", ToString(tensor.shape), " with strides ", ToString(tensor.strides),
                             " at element ", tensor.offset, " reaches beyond its storage of ", available, " elements"));
  };
  // Strides of 0 can declare any number of elements.
  int64_t most = kMaxBytes / SizeOf(tensor.dtype);
  for (const int64_t extent : tensor.shape) {
    if (extent > most) return Fail(tensor, absl::StrCat("shape ", ToString(tensor.shape), " is too large"));
    most /= std::max<int64_t>(extent, 1);
  }
  if (std::count(tensor.shape.begin(), tensor.shape.end(), 0) > 0) {
    return tensor.offset > available ? beyond() : absl::OkStatus();
  }
  if (tensor.offset >= available) return beyond();
  int64_t left = available - tensor.offset - 1;  // how far the last element may lie behind the first
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    const int64_t steps = tensor.shape[i] - 1;
    if (steps == 0 || tensor.strides[i] == 0) continue;
    if (tensor.strides[i] > left / steps) return beyond();
    left -= tensor.strides[i] * steps;
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorReader::Rebuild> TensorReader::Unwrap(const StoredTensor& tensor, const PickleValue& value) const {
  const auto function_of = [&](const PickleValue& call) {
    return call.kind == Kind::kCall ? pickle_.Item(call, 0).number : int64_t{-1};
  };
  const PickleValue* call = &value;
  const int64_t outer = function_of(*call);
  if (outer == kRebuildParameter || outer == kRebuildParameterWithState) {
    // tensor, requires_grad, hooks; then the attributes
    const PickleValue& arguments = pickle_.Item(*call, 1);
    const size_t needed = outer == kRebuildParameter ? 3 : 4;
    if (arguments.items.size() != needed) {
      return Fail(tensor,
                  absl::StrCat("a parameter made of ", arguments.items.size(), " arguments, expected ", needed));
    }
    call = &pickle_.Item(arguments, 0);
  }
  int64_t function = function_of(*call);
  if (function < 0) return Fail(tensor, absl::StrCat("is ", Describe(call->kind), ", expected a tensor"));
  const PickleValue* arguments = &pickle_.Item(*call, 1);
  if (function == kRebuildFromType) {
    // function, class, its arguments, attributes
    if (arguments->items.size() != 4) {
      return Fail(tensor, absl::StrCat("a typed tensor made of ", arguments->items.size(), " arguments, expected 4"));
    }
    const PickleValue& type = pickle_.Item(*arguments, 1);
    if (type.kind != Kind::kGlobal || type.number < kTensorClass || type.number > kParameterClass) {
      return Fail(tensor, "of a class that is neither Tensor nor Parameter");
    }
    const PickleValue& inner = pickle_.Item(*arguments, 0);
    function = inner.kind == Kind::kGlobal ? inner.number : -1;
    arguments = &pickle_.Item(*arguments, 2);
  }
  if (function < kRebuildTensorV1 || function > kRebuildTensorV3) {
    return Fail(tensor, absl::StrCat("is ", Describe(call->kind), ", expected a tensor"));
  }
  return Rebuild{function, arguments};
}

absl::Status TensorReader::ReadMetadata(const PickleValue& value, StoredTensor* tensor) const {
  if (value.kind == Kind::kNone) return absl::OkStatus();
  if (value.kind != Kind::kDict) {
    return Fail(*tensor, absl::StrCat("its metadata is ", Describe(value.kind), ", expected a dict"));
  }
  for (size_t i = 0; i + 1 < value.items.size(); i += 2) {
    const PickleValue &key = pickle_.Item(value, i), &flag = pickle_.Item(value, i + 1);
    const bool is_negated = key.kind == Kind::kString && key.text == "neg";
    if (is_negated && flag.kind == Kind::kBool && flag.number == 1 && tensor->dtype != DType::kBool) {
      tensor->negated = true;
      continue;
    }
    const std::string name = key.kind == Kind::kString ? Quoted(key.text) : std::string(Describe(key.kind));
    return Fail(*tensor, absl::StrCat("its metadata has ", name, " (", Describe(flag.kind),
                                      "), expected at most \"neg\" (True) of numbers: that they are to be negated"));
  }
  return absl::OkStatus();
}

absl::StatusOr<StoredTensor> TensorReader::Read(const PickleValue& name, const PickleValue& value) const {
  if (name.kind != Kind::kString) {
    return absl::InvalidArgumentError(
        absl::StrCat(source_, ": a key of its dict is ", Describe(name.kind), ", expected the name of a tensor"));
  }
  StoredTensor tensor;
  tensor.name = std::string(name.text);
  ASSIGN_OR_RETURN(const Rebuild rebuild, Unwrap(tensor, value));
  // storage, offset, shape, strides; then requires_grad, hooks; then dtype; then perhaps metadata
  const PickleValue& arguments = *rebuild.arguments;
  const bool has_dtype = rebuild.function == kRebuildTensorV3;
  const size_t needed = rebuild.function == kRebuildTensorV1 ? 4 : has_dtype ? 7 : 6;
  const size_t most = rebuild.function == kRebuildTensorV1 ? needed : needed + 1;
  if (arguments.kind != Kind::kTuple || arguments.items.size() < needed || arguments.items.size() > most) {
    return Fail(tensor, absl::StrCat("made of ", arguments.items.size(), " arguments, expected ", needed));
  }
  std::optional<DType> dtype;
  if (has_dtype) {
    const PickleValue& type = pickle_.Item(arguments, 6);
    if (type.kind != Kind::kGlobal || type.number < kFirstDType || type.number >= kFirstDType + kNumDTypes) {
      return Fail(tensor, "its dtype is none");
    }
    dtype = kDTypes[type.number - kFirstDType];
  }
  RETURN_IF_ERROR(ReadStorage(pickle_.Item(arguments, 0), dtype, &tensor));
  const PickleValue& offset = pickle_.Item(arguments, 1);
  const std::optional<std::vector<int64_t>> shape = Numbers(pickle_.Item(arguments, 2));
  const std::optional<std::vector<int64_t>> strides = Numbers(pickle_.Item(arguments, 3));
  if (offset.kind != Kind::kInt || offset.number < 0 || !shape.has_value() || !strides.has_value() ||
      shape->size() != strides->size()) {
    return Fail(tensor, absl::StrCat("its offset, shape or strides are not nonnegative whole numbers, as many strides "
                                     "as extents and at most ",
                                     kMaxExtents));
  }
  tensor.offset = offset.number;
  tensor.shape = *shape;
  tensor.strides = *strides;
  RETURN_IF_ERROR(CheckInside(tensor));
  if (arguments.items.size() > needed) RETURN_IF_ERROR(ReadMetadata(pickle_.Item(arguments, needed), &tensor));
  return tensor;
}

}  // namespace

bool StoredTensor::IsContiguous() const {
  if (std::count(shape.begin(), shape.end(), 0) > 0) return true;
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    if (strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

absl::StatusOr<std::vector<StoredTensor>> ReadTensorPickle(absl::string_view pickle, const std::string& source) {
  ASSIGN_OR_RETURN(const Pickle parsed, ReadPickle(pickle, kGlobals, source));
  const PickleValue& root = parsed.Root();
  if (root.kind != Kind::kDict) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": holds ", Describe(root.kind), ", expected a dict of names and tensors"));
  }
  const TensorReader reader(parsed, source);
  std::vector<StoredTensor> tensors;
  // A pickle of a few bytes an entry can give one tensor to the same name again and again.
  absl::flat_hash_set<absl::string_view> names;
  for (size_t i = 0; i + 1 < root.items.size(); i += 2) {
    ASSIGN_OR_RETURN(StoredTensor tensor, reader.Read(parsed.Item(root, i), parsed.Item(root, i + 1)));
    if (!names.insert(parsed.Item(root, i).text).second) {
      return absl::InvalidArgumentError(absl::StrCat(source, ": tensor ", Quoted(tensor.name), ": is there twice"));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

absl::string_view StorageClass(DType dtype) {
  for (int64_t i = 0; i < kNumStorages; ++i) {
    constexpr size_t kModule = 6;  // of "torch."
    if (kDTypes[i] == dtype) return kGlobals[kFirstStorage + i].substr(kModule);
  }
  return "";
}

}  // namespace kvm
