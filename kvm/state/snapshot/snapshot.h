#ifndef KVM_STATE_SNAPSHOT_SNAPSHOT_H_
#define KVM_STATE_SNAPSHOT_SNAPSHOT_H_

// One session ↔ one file (docs/formats/snapshot.md). A session read back goes on to the bit as if it had never been
// written, on any number of threads, and without feeding any token again.
//
//   RETURN_IF_ERROR(WriteSnapshot("talk.kvmstate", session, identity));
//   ASSIGN_OR_RETURN(Session session, ReadSnapshot("talk.kvmstate", identity, model.NewSequence()));

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/base/file/file_operations.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/state/model_identity.h"
#include "kvm/state/snapshot/session.h"
#include "kvm/state/snapshot/snapshot.pb.h"

namespace kvm {

// Writes a file atomically (kvm/base/file/atomic_file.h) and makes no copy of the state. InvalidArgument for a session
// whose tokens are not as many as its state has taken in, for a state with NaN or infinity in it, naming layer and
// tensor, and for sampler options that cannot be; the errors of AtomicFile. Tests pass `operations` that fail.
absl::Status WriteSnapshot(const std::string& path, const Session& session, const ModelIdentity& identity,
                           std::shared_ptr<FileOperations> operations = std::make_shared<FileOperations>());

// Reads and checks a whole file: every byte is under a checksum. `fresh` is a new sequence of the model.
// InvalidArgument naming `path` and the section at fault for anything but an intact snapshot, and for a state with NaN
// or infinity in it; FailedPrecondition with
// both fingerprints for one of another model, and with both values for one computed with other options; Unimplemented
// for a newer version of the format, which may be intact. NotFound when there is no file.
// With a `pool` on its threads.
absl::StatusOr<Session> ReadSnapshot(const std::string& path, const ModelIdentity& identity, SequenceState fresh,
                                     ThreadPool* pool = nullptr);

// What a snapshot says of itself, checked but for the sections' contents: cheap for a file of any size. Errors as
// ReadSnapshot.
absl::StatusOr<SnapshotHeader> ReadSnapshotHeader(const std::string& path);

// Whether a header read from `path` is of this model and its options: FailedPrecondition as ReadSnapshot.
absl::Status CheckSnapshotModel(const SnapshotHeader& header, const ModelIdentity& identity, const std::string& path);

// The tokens alone, for finding sessions by their beginnings. Errors as ReadSnapshot.
absl::StatusOr<std::vector<int32_t>> ReadSnapshotTokens(const std::string& path);

// The elements of one I32 tensor of the state, by its name, such as "layer.3.mixer.head.0.row_of_token". NotFound when
// there is none; other errors as ReadSnapshot.
absl::StatusOr<std::vector<int32_t>> ReadSnapshotInts(const std::string& path, absl::string_view name);

// Reads every byte and checks what can be checked without the model. Errors as ReadSnapshot.
absl::Status CheckSnapshot(const std::string& path);

}  // namespace kvm

#endif  // KVM_STATE_SNAPSHOT_SNAPSHOT_H_
