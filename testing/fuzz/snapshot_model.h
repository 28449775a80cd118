#ifndef KVM_TESTING_FUZZ_SNAPSHOT_MODEL_H_
#define KVM_TESTING_FUZZ_SNAPSHOT_MODEL_H_

#include <memory>

#include "kvm/model/language_model.h"
#include "kvm/state/model_identity.h"

namespace kvm {

// The model that the snapshots in corpus/snapshot are of: a layer of every kind, as small as they come.
std::unique_ptr<LanguageModel> NewSnapshotModel();
ModelIdentity SnapshotModelIdentity();

}  // namespace kvm

#endif  // KVM_TESTING_FUZZ_SNAPSHOT_MODEL_H_
