#ifndef KVM_IO_CONTENT_HASH_H_
#define KVM_IO_CONTENT_HASH_H_

// A 64-bit hash that tells contents apart and finds damage; it is no defence against forgery. Defined byte by byte in
// docs/formats/packed.md, so that it may stand in files.
//
//   ContentHash hash;
//   hash.Add(bytes);
//   const uint64_t value = hash.Value();

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/io/tensor_stream.h"
#include "kvm/model/stack.pb.h"
#include "kvm/model/weight_source.h"

namespace kvm {

class ContentHash {
 public:
  // Contents may come in any pieces.
  void Add(absl::string_view bytes);
  uint64_t Value() const;

 private:
  static constexpr size_t kBlock = 32;

  uint64_t lanes_[4] = {1, 2, 3, 4};
  uint64_t length_ = 0;
  char rest_[kBlock] = {};  // the first length_ % kBlock bytes of the next block
};

// How a fingerprint takes the spec.
enum class SpecForm {
  kCanonical,  // as CanonicalStack
  kAsWritten,  // as it is: what packed models of version 1 state
};

// What a model is: its canonical spec and every tensor's name, dtype, shape and elements. The same for the same model
// in any form of file.
uint64_t ModelFingerprint(const StackSpec& spec, const WeightSource& weights, SpecForm form = SpecForm::kCanonical);
// The same of tensors that come in the order of their names. Errors of the stream.
absl::StatusOr<uint64_t> ModelFingerprint(const StackSpec& spec, const TensorStream& tensors,
                                          SpecForm form = SpecForm::kCanonical);

}  // namespace kvm

#endif  // KVM_IO_CONTENT_HASH_H_
