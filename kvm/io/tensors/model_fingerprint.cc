#include "kvm/io/tensors/model_fingerprint.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kvm/base/file/content_hash.h"
#include "kvm/base/status_macros.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/stack/canonical_stack.h"

namespace kvm {

uint64_t ModelFingerprint(const StackSpec& spec, const WeightSource& weights, SpecForm form) {
  // Tensors that are not converted can be read.
  return *ModelFingerprint(spec, StreamWeights(weights, weights.Names(), {}), form);
}

absl::StatusOr<uint64_t> ModelFingerprint(const StackSpec& spec, const TensorStream& tensors, SpecForm form) {
  ContentHash hash;
  const auto add = [&hash](absl::string_view bytes) {
    const uint64_t length = bytes.size();
    hash.Add(absl::string_view(reinterpret_cast<const char*>(&length), sizeof(length)));
    hash.Add(bytes);
  };
  add((form == SpecForm::kCanonical ? CanonicalStack(spec) : spec).SerializeAsString());
  for (const TensorStream::Entry& entry : tensors.tensors) {
    RETURN_IF_ERROR(CheckNotCancelled(tensors.cancelled));
    ASSIGN_OR_RETURN(const HeldTensor held, tensors.read(entry.name));
    const TensorView& tensor = held.view;
    add(entry.name);
    add(absl::StrCat(Name(tensor.dtype), ToString(tensor.shape)));
    add(absl::string_view(static_cast<const char*>(tensor.data), static_cast<size_t>(tensor.byte_size())));
  }
  return hash.Value();
}

}  // namespace kvm
