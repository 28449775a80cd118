#ifndef KVM_TESTING_FUZZ_MEMORY_FILE_H_
#define KVM_TESTING_FUZZ_MEMORY_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace kvm {

// A file that lies in memory, for functions that take a path.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size);
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();

  // Valid as long as this object.
  const std::string& path() const { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

}  // namespace kvm

#endif  // KVM_TESTING_FUZZ_MEMORY_FILE_H_
