// Keeps the checksums of entries that lie within the archive right in most inputs.

#include <cstdint>
#include <cstring>

#include "kvm/base/file/crc32.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

template <typename T>
T Read(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

void RepairChecksum(uint8_t* data, size_t size, uint8_t* header) {
  const size_t length = Read<uint32_t>(header + 20);
  const size_t local = Read<uint32_t>(header + 42);
  if (local > size || size - local < 30) return;
  const size_t begin = local + 30 + Read<uint16_t>(data + local + 26) + Read<uint16_t>(data + local + 28);
  if (begin > size || length > size - begin) return;
  const uint32_t sum = kvm::Crc32({reinterpret_cast<const char*>(data + begin), length});
  const uint32_t old = Read<uint32_t>(header + 16);
  std::memcpy(header + 16, &sum, sizeof(sum));
  std::memcpy(data + local + 14, &sum, sizeof(sum));
  // Behind the data, after a signature.
  if (size - begin - length >= 8 && Read<uint32_t>(data + begin + length + 4) == old) {
    std::memcpy(data + begin + length + 4, &sum, sizeof(sum));
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 8 == 0) return size;
  for (size_t at = 0; at + 46 <= size; ++at) {
    if (std::memcmp(data + at, "PK\1\2", 4) == 0) RepairChecksum(data, size, data + at);
  }
  return size;
}
