#include "testing/golden_folders.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace kvm {

std::string GoldenRoot() {
  const char* const sources = std::getenv("TEST_SRCDIR");
  const char* const workspace = std::getenv("TEST_WORKSPACE");
  return std::string(sources == nullptr ? "." : sources) + "/" + (workspace == nullptr ? "kvm" : workspace) +
         "/testing/golden";
}

std::vector<std::string> GoldenFolders() {
  std::vector<std::string> folders;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenRoot(), error)) {
    if (entry.is_directory()) folders.push_back(entry.path().filename());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace kvm
