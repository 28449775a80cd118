#include "kvm/base/file/file_kind.h"

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace kvm {
namespace {

constexpr uint64_t kMaxSafetensorsHeader = 100 * 1000 * 1000;

// Eight bytes of a length that a header can have, then its opening brace.
bool BeginsAsSafetensors(absl::string_view start) {
  if (start.size() < 9 || start[8] != '{') return false;
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(start[static_cast<size_t>(i)]);
  return length >= 2 && length <= kMaxSafetensorsHeader;
}

// What a file of the kind does, behind "it".
absl::string_view Describe(FileKind kind) {
  switch (kind) {
    case FileKind::kUnknown:
      return "";
    case FileKind::kEmpty:
      return "is empty";
    case FileKind::kZeros:
      return "begins with zeros: a download that did not finish";
    case FileKind::kSafetensors:
      return "looks like a safetensors file";
    case FileKind::kPacked:
      return "looks like a packed model";
    case FileKind::kSnapshot:
      return "looks like a snapshot of a session";
    case FileKind::kZip:
      return "looks like a zip archive, as PyTorch checkpoints are";
    case FileKind::kPickle:
      return "looks like a pickle, as PyTorch checkpoints were before version 1.6 (load it with PyTorch and save it "
             "anew)";
    case FileKind::kGguf:
      return "looks like a GGUF file";
    case FileKind::kGitLfsPointer:
      return "looks like a Git LFS pointer, not the file itself (git lfs pull fetches it)";
    case FileKind::kHtml:
      return "looks like an HTML page: a download that went wrong";
    case FileKind::kJson:
      return "looks like JSON";
    case FileKind::kUtf16:
      return "looks like text in UTF-16 (save it as UTF-8)";
  }
  return "";
}

}  // namespace

FileKind DetectFileKind(absl::string_view start) {
  start = start.substr(0, kFileKindBytes);
  if (start.empty()) return FileKind::kEmpty;
  if (start.find_first_not_of('\0') == absl::string_view::npos) return FileKind::kZeros;
  if (absl::StartsWith(start, "version https://git-lfs")) return FileKind::kGitLfsPointer;
  if (absl::StartsWith(start, absl::string_view("PK\x03\x04", 4))) return FileKind::kZip;
  if (absl::StartsWith(start, absl::string_view("PK\x05\x06", 4))) return FileKind::kZip;  // an empty one
  if (absl::StartsWith(start, "KVMPACK")) return FileKind::kPacked;
  if (absl::StartsWith(start, "KVMSNAP")) return FileKind::kSnapshot;
  if (absl::StartsWith(start, "GGUF")) return FileKind::kGguf;
  if (start.size() >= 2 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5) return FileKind::kPickle;
  if (BeginsAsSafetensors(start)) return FileKind::kSafetensors;
  if (absl::StartsWith(start, "\xFF\xFE") || absl::StartsWith(start, "\xFE\xFF")) return FileKind::kUtf16;
  absl::ConsumePrefix(&start, "\xEF\xBB\xBF");  // of text in UTF-8
  const size_t text = start.find_first_not_of(" \t\r\n");
  const absl::string_view word = text == absl::string_view::npos ? "" : start.substr(text);
  if (absl::StartsWithIgnoreCase(word, "<!doctype") || absl::StartsWithIgnoreCase(word, "<html")) {
    return FileKind::kHtml;
  }
  if (absl::StartsWith(word, "{")) return FileKind::kJson;
  return FileKind::kUnknown;
}

std::string LooksLike(absl::string_view start) {
  const FileKind kind = DetectFileKind(start);
  return kind == FileKind::kUnknown ? "" : absl::StrCat("; it ", Describe(kind));
}

}  // namespace kvm
