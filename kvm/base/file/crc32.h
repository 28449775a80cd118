#ifndef KVM_BASE_FILE_CRC32_H_
#define KVM_BASE_FILE_CRC32_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace kvm {

// The checksum of zip files (CRC-32/ISO-HDLC: reflected polynomial 0xEDB88320). `sum` is that of the bytes before, so
// that Crc32(b, Crc32(a)) is the sum of a followed by b.
uint32_t Crc32(absl::string_view bytes, uint32_t sum = 0);

}  // namespace kvm

#endif  // KVM_BASE_FILE_CRC32_H_
