#include "kvm/io/tokenizer/tokenizer_files.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "kvm/base/file/folder_files.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/file/path_check.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;

constexpr char kWorldFile[] = "rwkv_vocab.txt";

bool IsWorldFileName(absl::string_view name) {
  return absl::StartsWith(name, "rwkv_vocab") && absl::EndsWithIgnoreCase(name, ".txt");
}

}  // namespace

// The vocabulary's first line begins with an id; nothing else that begins so is meant to be a tokenizer.
bool IsWorldVocabulary(absl::string_view content) {
  content = SkipByteOrderMark(content);
  return !content.empty() && absl::ascii_isdigit(static_cast<unsigned char>(content[0]));
}

std::string FindTokenizerFile(const std::string& folder) {
  const std::string json = (fs::path(folder) / kTokenizerJsonFile).string();
  if (NameExists(json)) return json;
  std::error_code error;
  std::string first;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (IsWorldFileName(name) && (first.empty() || name < first)) first = name;
  }
  return first.empty() ? "" : (fs::path(folder) / first).string();
}

absl::StatusOr<std::string> TokenizerFileName(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  if (name == kTokenizerJsonFile || IsWorldFileName(name)) return name;
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  return std::string(IsWorldVocabulary(content) ? kWorldFile : kTokenizerJsonFile);
}

}  // namespace kvm
