#include "tools/flags/state_fits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/model/engine/state_size.h"
#include "kvm/model/stack/builtin_kinds.h"

namespace kvm {
absl::Status CheckStateFits(const StackSpec& spec, DType state_dtype, int64_t num_sequences, int64_t tokens,
                            int64_t available) {
  const auto bytes_at = [&](int64_t context) {
    return static_cast<double>(num_sequences) *
           static_cast<double>(SequenceStateSize(spec, state_dtype, context).bytes);
  };
  const std::string sequences = num_sequences == 1 ? "" : absl::StrCat(num_sequences, " x ");
  const std::string block = DescribeBlockTooLarge(spec, state_dtype, num_sequences, available);
  RETURN_IF_ERROR(CheckFitsInMemory(
      absl::StrCat("states of ", sequences.empty() ? "a single" : sequences + "1", " token"), bytes_at(1),
      block.empty() ? "choose fewer channels or layers" : absl::StrCat(block, ": choose a smaller chunk_len"),
      available));
  return CheckFitsInMemory(absl::StrCat("states of ", sequences, tokens, " tokens"),
                           bytes_at(std::max<int64_t>(tokens, 1)), "give fewer tokens", available);
}

std::string DescribeBlockTooLarge(const StackSpec& spec, DType state_dtype, int64_t num_sequences, int64_t available) {
  for (const MixerSpec& mixer : spec.mixers()) {
    const auto layers = std::count(spec.layers().begin(), spec.layers().end(), mixer.name());
    const double bytes = static_cast<double>(num_sequences) * static_cast<double>(layers) *
                         static_cast<double>(MixerStateSize(mixer, spec.width(), state_dtype, 1).bytes);
    const MixerKind& kind = BuiltinMixerKinds().Of(mixer);
    const int64_t chunk_len = kind.chunk_len == nullptr ? 0 : kind.chunk_len(mixer);
    if (chunk_len <= 1 || available == 0 || bytes <= static_cast<double>(available)) continue;
    return absl::StrCat("mixer \"", mixer.name(), "\" begins with a whole block of ", kind.chunk_field, " ", chunk_len,
                        " tokens");
  }
  return "";
}

}  // namespace kvm
