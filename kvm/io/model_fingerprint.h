#ifndef KVM_IO_MODEL_FINGERPRINT_H_
#define KVM_IO_MODEL_FINGERPRINT_H_

#include <cstdint>

#include "kvm/model/stack.pb.h"
#include "kvm/model/weight_source.h"

namespace kvm {

// What a model is: its spec and every tensor's name, dtype, shape and elements. The same for the same model in any form
// of file. Defined byte by byte in docs/formats/packed.md. Reads all weights.
uint64_t ModelFingerprint(const StackSpec& spec, const WeightSource& weights);

}  // namespace kvm

#endif  // KVM_IO_MODEL_FINGERPRINT_H_
