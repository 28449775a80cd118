#ifndef KVM_IO_TENSORS_MODEL_FINGERPRINT_H_
#define KVM_IO_TENSORS_MODEL_FINGERPRINT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kvm/io/tensors/tensor_stream.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

// How a fingerprint takes the spec.
enum class SpecForm {
  kCanonical,  // as CanonicalStack
  kAsWritten,  // as it is: what packed models of version 1 state
};

// What a model is: its canonical spec and every tensor's name, dtype, shape and elements. The same for the same model
// in any form of file. Defined byte by byte in docs/formats/packed.md. Reads all weights.
uint64_t ModelFingerprint(const StackSpec& spec, const WeightSource& weights, SpecForm form = SpecForm::kCanonical);

// The same of tensors that come in the order of their names. Errors of the stream.
absl::StatusOr<uint64_t> ModelFingerprint(const StackSpec& spec, const TensorStream& tensors,
                                          SpecForm form = SpecForm::kCanonical);

}  // namespace kvm

#endif  // KVM_IO_TENSORS_MODEL_FINGERPRINT_H_
