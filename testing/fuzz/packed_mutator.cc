// Keeps the header's hash right in most inputs.

#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "kvm/base/file/content_hash.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  constexpr size_t kFrame = 24;  // magic, length, hash
  size = LLVMFuzzerMutate(data, size, max_size);
  if (size < kFrame || seed % 8 == 0) return size;
  uint64_t length;
  std::memcpy(&length, data + 8, sizeof(length));
  if (length > size - kFrame) {
    length = size - kFrame;
    std::memcpy(data + 8, &length, sizeof(length));
  }
  kvm::ContentHash hash;
  hash.Add(absl::string_view(reinterpret_cast<const char*>(data + kFrame), length));
  const uint64_t value = hash.Value();
  std::memcpy(data + 16, &value, sizeof(value));
  return size;
}
