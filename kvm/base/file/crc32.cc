#include "kvm/base/file/crc32.h"

#include <array>
#include <cstddef>
#include <cstring>

namespace kvm {
namespace {

constexpr uint32_t kPolynomial = 0xEDB88320u;
constexpr size_t kStep = 8;

// entry [k][b]: what byte b contributes when k zero bytes follow it.
using Tables = std::array<std::array<uint32_t, 256>, kStep>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1u) != 0 ? kPolynomial : 0u);
    tables[0][byte] = sum;
  }
  for (size_t k = 1; k < kStep; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "eight bytes at a time, the first one lowest");

}  // namespace

uint32_t Crc32(absl::string_view bytes, uint32_t sum) {
  sum = ~sum;
  while (bytes.size() >= kStep) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), kStep);
    word ^= sum;
    sum = 0;
    for (size_t i = 0; i < kStep; ++i) sum ^= kTables[kStep - 1 - i][word >> (8 * i) & 0xff];
    bytes.remove_prefix(kStep);
  }
  for (const char c : bytes) sum = (sum >> 8) ^ kTables[0][(sum ^ static_cast<uint8_t>(c)) & 0xff];
  return ~sum;
}

}  // namespace kvm
