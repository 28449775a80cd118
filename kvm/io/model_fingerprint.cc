#include "kvm/io/model_fingerprint.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kvm/io/content_hash.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/tensor.h"

namespace kvm {

uint64_t ModelFingerprint(const StackSpec& spec, const WeightSource& weights) {
  ContentHash hash;
  const auto add = [&hash](absl::string_view bytes) {
    const uint64_t length = bytes.size();
    hash.Add(absl::string_view(reinterpret_cast<const char*>(&length), sizeof(length)));
    hash.Add(bytes);
  };
  add(spec.SerializeAsString());
  for (const std::string& name : weights.Names()) {
    const TensorView& tensor = *weights.Find(name);
    add(name);
    add(absl::StrCat(Name(tensor.dtype), ToString(tensor.shape)));
    add(absl::string_view(static_cast<const char*>(tensor.data), static_cast<size_t>(tensor.byte_size())));
  }
  return hash.Value();
}

}  // namespace kvm
