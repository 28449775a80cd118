// tokenizer.json: whatever is read can encode text, that of the file among others.

#include <algorithm>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/io/tokenizer/byte_level_bpe.h"
#include "testing/fuzz/memory_limit.h"
#include "testing/fuzz/tokenizer_round_trip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view json(reinterpret_cast<const char*>(data), size);
  // A token of a few bytes makes room for 16 ids, and 4096 are free.
  const kvm::MemoryLimit limit((size_t{1} << 20) + 400 * size);
  const absl::StatusOr<std::unique_ptr<kvm::Tokenizer>> tokenizer = kvm::ParseByteLevelBpe(json, "tokenizer.json");
  if (!tokenizer.ok()) return 0;
  // Normalization may change text, and steps may drop some of it: not exact.
  kvm::TokenizerRoundTrip(**tokenizer, "Ein Satz, it's 1234 caf\xc3\xa9 e\xcc\x81\n\n  \xe6\x97\xa5\xe6\x9c\xac <s>",
                          false);
  kvm::TokenizerRoundTrip(**tokenizer, json.substr(0, std::min<size_t>(size, 512)), false);
  return 0;
}
