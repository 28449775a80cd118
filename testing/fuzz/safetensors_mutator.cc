// Keeps the header's length right in most inputs.

#include <cstdint>
#include <cstring>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (size < sizeof(uint64_t) || seed % 4 == 0) return size;
  uint64_t end = size;
  while (end > sizeof(uint64_t) && data[end - 1] != '}') --end;
  const uint64_t length = end - sizeof(uint64_t);
  std::memcpy(data, &length, sizeof(length));
  return size;
}
