// A World vocabulary: whatever is read gives back the text that it encodes.

#include <algorithm>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"
#include "kvm/io/tokenizer/world_tokenizer.h"
#include "testing/fuzz/memory_limit.h"
#include "testing/fuzz/tokenizer_round_trip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  // There are always 65,536 ids, each a string: 2 MiB.
  const kvm::MemoryLimit limit((size_t{2304} << 10) + 150 * size);
  const absl::StatusOr<std::unique_ptr<kvm::Tokenizer>> tokenizer = kvm::ParseWorldVocabulary(text, "vocabulary.txt");
  if (!tokenizer.ok()) return 0;
  CHECK_EQ((*tokenizer)->vocab_size(), 65536);
  kvm::TokenizerRoundTrip(**tokenizer, text.substr(0, std::min<size_t>(size, 1024)), true);
  return 0;
}
