// Keeps the hashes of the header and of sections right in most inputs.

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"
#include "kvm/base/checked_parse.h"
#include "kvm/base/file/content_hash.h"
#include "kvm/state/snapshot/snapshot.pb.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

constexpr size_t kFrame = 32;  // magic, version, length, hash

uint64_t HashOf(const uint8_t* data, size_t size) {
  kvm::ContentHash hash;
  hash.Add(absl::string_view(reinterpret_cast<const char*>(data), size));
  return hash.Value();
}

// States the hash of the bytes where the section says it lies.
void Repair(const uint8_t* data, size_t size, kvm::SnapshotSection* section) {
  if (section->offset() > size || section->size() > size - section->offset()) return;
  section->set_hash(HashOf(data + section->offset(), section->size()));
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (size < kFrame || seed % 8 == 0) return size;
  uint64_t length;
  std::memcpy(&length, data + 16, sizeof(length));
  if (length > size - kFrame) length = size - kFrame;
  kvm::SnapshotHeader header;
  const size_t data_begin = (kFrame + length + 63) / 64 * 64;
  if (data_begin <= size && kvm::ParseChecked({reinterpret_cast<const char*>(data) + kFrame, length}, &header)) {
    if (header.has_tokens()) Repair(data + data_begin, size - data_begin, header.mutable_tokens());
    if (header.has_logits()) Repair(data + data_begin, size - data_begin, header.mutable_logits());
    for (kvm::SnapshotSection& section : *header.mutable_tensors()) {
      Repair(data + data_begin, size - data_begin, &section);
    }
    const std::string bytes = header.SerializeAsString();
    // As long as before, unless the change made numbers longer or shorter than they must be.
    if (bytes.size() == length) std::memcpy(data + kFrame, bytes.data(), bytes.size());
  }
  std::memcpy(data + 16, &length, sizeof(length));
  const uint64_t hash = HashOf(data + kFrame, length);
  std::memcpy(data + 24, &hash, sizeof(hash));
  return size;
}
