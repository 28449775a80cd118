#ifndef TESTING_REFERENCE_MODEL_REFERENCE_MODEL_H_
#define TESTING_REFERENCE_MODEL_REFERENCE_MODEL_H_

// A whole stack in double precision, written for being obviously right: every sequence is computed from its first
// token, all at once. What models are compared with where no published number decides.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/weight_source.h"
#include "testing/reference_model/reference_mixers.h"

namespace kvm {
namespace reference {

struct ModelRun {
  Rows logits;               // [T][V]
  std::vector<Rows> hidden;  // the residual stream behind every layer [T][D]
  KvmTrace trace;
};

// `spec` is valid, `weights` has its parameters, tokens are in the vocabulary and at least one.
ModelRun RunModel(const StackSpec& spec, const WeightSource& weights, absl::Span<const int32_t> tokens);

}  // namespace reference
}  // namespace kvm

#endif  // TESTING_REFERENCE_MODEL_REFERENCE_MODEL_H_
