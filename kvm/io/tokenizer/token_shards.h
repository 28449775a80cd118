#ifndef KVM_IO_TOKENIZER_TOKEN_SHARDS_H_
#define KVM_IO_TOKENIZER_TOKEN_SHARDS_H_

// Token files for training (the llm.c format): 256 int32 header words (20240520, 1, token count, zeros), then uint16
// tokens, all little-endian.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kvm {

// Writes one shard atomically. InvalidArgument when an id does not fit uint16 or there are 2^31 tokens or more.
absl::Status WriteTokenShard(const std::string& path, absl::Span<const int32_t> tokens);

// Whether a file's bytes are those of such a file.
bool IsTokenShard(absl::string_view bytes);

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_TOKEN_SHARDS_H_
