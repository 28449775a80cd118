#ifndef KVM_STATE_SNAPSHOT_SNAPSHOT_LAYOUT_H_
#define KVM_STATE_SNAPSHOT_SNAPSHOT_LAYOUT_H_

// What the reader and the writer of snapshots share. Described byte by byte in docs/formats/snapshot.md.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/kernels/tensor.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/state/snapshot/sampler_state.h"
#include "kvm/state/snapshot/snapshot.pb.h"

namespace kvm {

inline constexpr absl::string_view kSnapshotMagic = "KVMSNAP\n";
inline constexpr uint64_t kSnapshotVersion = 1;
inline constexpr uint64_t kMaxSnapshotHeader = 1000 * 1000 * 1000;
// Magic, version, the header's length, its hash.
inline constexpr uint64_t kSnapshotFrame = 32;
// Sections, and the data as a whole, begin at multiples of it.
inline constexpr uint64_t kSnapshotAlignment = 64;

inline constexpr uint64_t AlignSnapshot(uint64_t position) {
  return (position + kSnapshotAlignment - 1) / kSnapshotAlignment * kSnapshotAlignment;
}

// A file's header, and where its parts lie.
struct SnapshotLayout {
  SnapshotHeader header;
  uint64_t header_end = 0;
  uint64_t data_begin = 0;

  // Sections in the order of the file; they point into `header`.
  std::vector<const SnapshotSection*> Sections() const;
};

// Parses and checks the header of a snapshot, of which `file` is all bytes: frame, hash, version, and that the sections
// have the sizes of their shapes and lie one after the other up to the end of the file. Nothing is allocated by sizes
// that the header states. InvalidArgument, beginning with `path` and the part at fault; Unimplemented for a newer
// version.
absl::StatusOr<SnapshotLayout> ParseSnapshot(absl::string_view file, const std::string& path);

SamplerState ToSamplerState(const SnapshotSampler& sampler);

// A section's bytes as a tensor. The section is one of a parsed header.
TensorView ViewOf(const SnapshotSection& section, const SnapshotLayout& layout, absl::string_view file);

// Checks a section's bytes against its hash. InvalidArgument, beginning with `path` and the section.
absl::Status CheckSection(const SnapshotSection& section, const SnapshotLayout& layout, absl::string_view file,
                          const std::string& path);

// Checks all that follows the header: sections, the zeros between them, and that the state's numbers are finite. On the
// threads of `pool`, or without one on this thread alone. Errors as CheckSection, of the first section at fault.
absl::Status CheckData(const SnapshotLayout& layout, absl::string_view file, const std::string& path, ThreadPool* pool);

}  // namespace kvm

#endif  // KVM_STATE_SNAPSHOT_SNAPSHOT_LAYOUT_H_
