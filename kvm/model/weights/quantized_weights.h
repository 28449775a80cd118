#ifndef KVM_MODEL_WEIGHTS_QUANTIZED_WEIGHTS_H_
#define KVM_MODEL_WEIGHTS_QUANTIZED_WEIGHTS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

// Whether a stack's tensor becomes int8 where weights are: every matrix `*.weight` whose smaller extent is at least an
// eighth of the stack's width, the embedding included, which lookups then read as well. The others stay as they are:
// norms, mixes and gates; and the low ranks and single rows that steer decays, merges and anchors, which together are
// few bytes.
bool BecomesInt8(const StackSpec& spec, absl::string_view name, const TensorInfo& info);

// The weights of a stack with the matrices that BecomesInt8 as panels of int8 (int8_panels.h), made here and now.
// Panels of int8 that `source` has are shown as they are. Find() gives such a matrix as the float32 numbers that it
// stands for. Has memory that lasts, but itself needs `source`, which passed CheckWeights. Thread-safe.
// InvalidArgument, naming the tensor, for a matrix with numbers that are NaN or infinite.
absl::StatusOr<std::unique_ptr<WeightSource>> QuantizeWeights(const StackSpec& spec, const WeightSource& source);

}  // namespace kvm

#endif  // KVM_MODEL_WEIGHTS_QUANTIZED_WEIGHTS_H_
