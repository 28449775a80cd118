#ifndef KVM_IO_TORCH_HAND_MADE_TORCH_H_
#define KVM_IO_TORCH_HAND_MADE_TORCH_H_

// Pieces of PyTorch checkpoints for tests: opcodes of a pickle as strings to be put together, and archives around them.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kvm {

// An archive of these entries. Aborts when it cannot be written.
void WriteZip(const std::string& path, const std::vector<std::pair<std::string, std::string>>& entries);

// A string of less than 256 bytes, a whole number of eight bytes, a tuple of such.
std::string PickledText(const std::string& text);
std::string PickledInt(int64_t number);
std::string PickledTuple(const std::vector<int64_t>& numbers);

// The storage "0" of a class, such as "torch\nFloatStorage".
std::string PickledStorage(const std::string& type, int64_t elements);

}  // namespace kvm

#endif  // KVM_IO_TORCH_HAND_MADE_TORCH_H_
