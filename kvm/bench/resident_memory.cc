#include "kvm/bench/resident_memory.h"

#include <malloc.h>
#include <unistd.h>

#include <fstream>

namespace kvm {

int64_t ResidentMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  std::ifstream file("/proc/self/statm");
  int64_t all_pages = 0, resident_pages = 0;
  if (!(file >> all_pages >> resident_pages)) return 0;
  return resident_pages * sysconf(_SC_PAGE_SIZE);
}

}  // namespace kvm
