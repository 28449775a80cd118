#include "kvm/io/identify_model.h"

#include "kvm/io/tensors/model_fingerprint.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {

ModelIdentity IdentifyModel(const StackSpec& spec, const WeightSource& weights, std::optional<uint64_t> stated,
                            const ModelOptions& options) {
  ModelIdentity identity;
  identity.fingerprint = stated.has_value() ? *stated : ModelFingerprint(spec, weights);
  identity.weights = options.weights;
  identity.state = options.state;
  identity.chunked_recurrences = options.chunked_recurrences;
  identity.stack = FormatStackSpec(spec);
  identity.provenance = options.provenance;
  return identity;
}

}  // namespace kvm
