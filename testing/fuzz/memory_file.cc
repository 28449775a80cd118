#include "testing/fuzz/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include "glog/logging.h"

namespace kvm {

MemoryFile::MemoryFile(const uint8_t* data, size_t size) : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
  PCHECK(descriptor_ >= 0);
  PCHECK(write(descriptor_, data, size) == static_cast<ssize_t>(size));
  path_ = "/proc/self/fd/" + std::to_string(descriptor_);
}

MemoryFile::~MemoryFile() { close(descriptor_); }

}  // namespace kvm
