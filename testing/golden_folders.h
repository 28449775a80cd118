#ifndef TESTING_GOLDEN_FOLDERS_H_
#define TESTING_GOLDEN_FOLDERS_H_

// Where tests find the golden folders (//testing/golden, as data).

#include <string>
#include <vector>

namespace kvm {

// The folder that holds them.
std::string GoldenRoot();

// Their names, sorted.
std::vector<std::string> GoldenFolders();

}  // namespace kvm

#endif  // TESTING_GOLDEN_FOLDERS_H_
