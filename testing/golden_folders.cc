#include "testing/golden_folders.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace kvm {

namespace {

std::string DataFolder(const std::string& name) {
  const char* const sources = std::getenv("TEST_SRCDIR");
  const char* const workspace = std::getenv("TEST_WORKSPACE");
  return std::string(sources == nullptr ? "." : sources) + "/" + (workspace == nullptr ? "kvm" : workspace) +
         "/testing/" + name;
}

std::vector<std::string> FoldersOf(const std::string& root) {
  std::vector<std::string> folders;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
    if (entry.is_directory()) folders.push_back(entry.path().filename());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace

std::string GoldenRoot() { return DataFolder("golden"); }
std::vector<std::string> GoldenFolders() { return FoldersOf(GoldenRoot()); }

std::string GoldenLayerRoot() { return DataFolder("golden_layers"); }
std::vector<std::string> GoldenLayerFolders() { return FoldersOf(GoldenLayerRoot()); }

}  // namespace kvm
