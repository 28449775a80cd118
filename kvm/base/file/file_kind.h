#ifndef KVM_BASE_FILE_FILE_KIND_H_
#define KVM_BASE_FILE_FILE_KIND_H_

// Telling files apart by their first bytes, so that a wrong one can be named as what it is.

#include <string>

#include "absl/strings/string_view.h"

namespace kvm {

enum class FileKind {
  kUnknown,
  kEmpty,
  kZeros,
  kSafetensors,
  kPacked,    // a packed model (packed_file.h)
  kSnapshot,  // of a session (kvm/state/snapshot/snapshot.h)
  kZip,       // PyTorch checkpoints since version 1.6 are zip archives
  kPickle,    // those before are pickles
  kGguf,
  kGitLfsPointer,
  kHtml,
  kJson,
  kUtf16,  // text, with a byte order mark
};

// `start` is the first kFileKindBytes of a file, or all of a shorter one.
inline constexpr size_t kFileKindBytes = 64;
FileKind DetectFileKind(absl::string_view start);

// "; it looks like a GGUF file" or "; it is empty", to be put behind a message that says what was expected; "" for
// kUnknown.
std::string LooksLike(absl::string_view start);

}  // namespace kvm

#endif  // KVM_BASE_FILE_FILE_KIND_H_
