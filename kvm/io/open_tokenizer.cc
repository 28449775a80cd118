#include "kvm/io/open_tokenizer.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "kvm/io/byte_level_bpe.h"
#include "kvm/io/folder_files.h"
#include "kvm/io/mapped_file.h"
#include "kvm/io/path_check.h"
#include "kvm/io/world_tokenizer.h"
#include "kvm/status_macros.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;

constexpr char kWorldFile[] = "rwkv_vocab.txt";

// The vocabulary's first line begins with an id; nothing else that begins so is meant to be a tokenizer.
bool IsWorldVocabulary(absl::string_view content) { return !content.empty() && content[0] >= '0' && content[0] <= '9'; }

bool IsWorldFileName(absl::string_view name) {
  return absl::StartsWith(name, "rwkv_vocab") && absl::EndsWith(name, ".txt");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  return IsWorldVocabulary(content) ? ParseWorldVocabulary(content, path) : ParseByteLevelBpe(content, path);
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
