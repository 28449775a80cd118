#include "kvm/io/tokenizer/token_shards.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/status_macros.h"

namespace kvm {
namespace {

constexpr uint32_t kMagic = 20240520;
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 256 * sizeof(int32_t);
constexpr size_t kTokensPerWrite = size_t{1} << 18;

void AppendWord(std::string* bytes, uint32_t word) {
  for (int shift = 0; shift < 32; shift += 8) bytes->push_back(static_cast<char>(word >> shift & 0xff));
}

absl::Status CheckTokens(const std::string& path, absl::Span<const int32_t> tokens) {
  if (tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a token shard holds at most 2147483647 tokens, not ", tokens.size()));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] > std::numeric_limits<uint16_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": token ", i, " is ", tokens[i], "; a token shard holds ids 0 to 65535"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool IsTokenShard(absl::string_view bytes) {
  if (bytes.size() < kHeaderBytes) return false;
  const auto word = [&](size_t i) {
    uint32_t value = 0;
    for (size_t b = 0; b < 4; ++b) value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[4 * i + b])) << 8 * b;
    return value;
  };
  return word(0) == kMagic && word(1) == kVersion && bytes.size() == kHeaderBytes + size_t{2} * word(2);
}

absl::Status WriteTokenShard(const std::string& path, absl::Span<const int32_t> tokens) {
  RETURN_IF_ERROR(CheckTokens(path, tokens));
  ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  std::string bytes;
  AppendWord(&bytes, kMagic);
  AppendWord(&bytes, kVersion);
  AppendWord(&bytes, static_cast<uint32_t>(tokens.size()));
  bytes.resize(kHeaderBytes);
  RETURN_IF_ERROR(file.Append(bytes));
  while (!tokens.empty()) {
    const absl::Span<const int32_t> part = tokens.subspan(0, kTokensPerWrite);
    bytes.resize(2 * part.size());
    for (size_t i = 0; i < part.size(); ++i) {
      bytes[2 * i] = static_cast<char>(part[i] & 0xff);
      bytes[2 * i + 1] = static_cast<char>(part[i] >> 8);
    }
    RETURN_IF_ERROR(file.Append(bytes));
    tokens.remove_prefix(part.size());
  }
  return file.Commit();
}

}  // namespace kvm
