#include "testing/fuzz/tokenizer_round_trip.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "glog/logging.h"

namespace kvm {

void TokenizerRoundTrip(const Tokenizer& tokenizer, absl::string_view text, bool exact) {
  const absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(text);
  if (!ids.ok()) return;
  const absl::StatusOr<std::string> decoded = Decode(tokenizer, *ids);
  CHECK(decoded.ok()) << decoded.status();
  if (exact) CHECK(*decoded == text) << "\"" << text << "\" came back as \"" << *decoded << "\"";
  StreamDecoder stream(&tokenizer);
  for (const int32_t id : *ids) stream.Add(id);
  stream.Finish();
}

}  // namespace kvm
