#ifndef TESTING_GOLDEN_FOLDERS_H_
#define TESTING_GOLDEN_FOLDERS_H_

// Where tests find the golden folders (//testing/golden and //testing/golden_layers, as data).

#include <string>
#include <vector>

namespace kvm {

// The folder that holds them.
std::string GoldenRoot();

// Their names, sorted.
std::vector<std::string> GoldenFolders();

// The same of folders that hold a single layer.
std::string GoldenLayerRoot();
std::vector<std::string> GoldenLayerFolders();

}  // namespace kvm

#endif  // TESTING_GOLDEN_FOLDERS_H_
