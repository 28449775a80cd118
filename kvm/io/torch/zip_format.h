#ifndef KVM_IO_TORCH_ZIP_FORMAT_H_
#define KVM_IO_TORCH_ZIP_FORMAT_H_

// The numbers of the zip format, for its reader and its writer.

#include <cstddef>
#include <cstdint>

namespace kvm {

inline constexpr uint32_t kZipLocalHeader = 0x04034b50;
inline constexpr uint32_t kZipDataDescriptor = 0x08074b50;
inline constexpr uint32_t kZipDirectoryHeader = 0x02014b50;
inline constexpr uint32_t kZip64EndRecord = 0x06064b50;
inline constexpr uint32_t kZip64Locator = 0x07064b50;
inline constexpr uint32_t kZipEndRecord = 0x06054b50;

// Bytes of these without their names, extra fields and comments.
inline constexpr size_t kZipLocalHeaderSize = 30;
inline constexpr size_t kZipDirectoryHeaderSize = 46;
inline constexpr size_t kZip64EndRecordSize = 56;
inline constexpr size_t kZip64LocatorSize = 20;
inline constexpr size_t kZipEndRecordSize = 22;

// The extra field that holds what does not fit 32 bits, and the values that point there.
inline constexpr uint16_t kZip64Extra = 0x0001;
inline constexpr uint32_t kZip64Size = 0xffffffff;
inline constexpr uint16_t kZip64Count = 0xffff;

inline constexpr uint16_t kZipFlagEncrypted = 1u << 0;
inline constexpr uint16_t kZipFlagDataDescriptor = 1u << 3;  // sizes and checksum stand behind the data
inline constexpr uint16_t kZipFlagUtf8 = 1u << 11;
inline constexpr uint16_t kZipStored = 0;

}  // namespace kvm

#endif  // KVM_IO_TORCH_ZIP_FORMAT_H_
