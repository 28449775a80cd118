#include "tools/flags/state_fits.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = 1024 * 1024;

StackSpec Spec(const std::string& mixer) {
  const absl::StatusOr<StackSpec> spec = ParseStackSpec(
      absl::StrCat("vocab_size: 9 width: 64 layers: [\"m\", \"m\"] mixers { name: \"m\" ", mixer, " }"), "spec");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : StackSpec();
}

// Keys and values of 64 channels in two layers: 1 KiB a token, in whole blocks.
std::string Message(const std::string& mixer, int64_t num_sequences, int64_t tokens, int64_t available) {
  const absl::Status status = CheckStateFits(Spec(mixer), DType::kF32, num_sequences, tokens, available);
  EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kResourceExhausted) << status;
  return std::string(status.message());
}

TEST(CheckStateFits, ComparesWhatIsAskedForWithWhatIsThere) {
  const std::string attention = "attention { projections { num_heads: 1 } }";
  EXPECT_EQ(Message(attention, 1, 64 * 1024, 65 * kMiB), "");
  EXPECT_THAT(Message(attention, 1, 64 * 1024, 63 * kMiB),
              HasSubstr("states of 65536 tokens take 64.0 MiB and this machine has 63.0 MiB available; give fewer "
                        "tokens"));
  EXPECT_THAT(Message(attention, 3, 64 * 1024, 65 * kMiB), HasSubstr("states of 3 x 65536 tokens take 192.0 MiB"));
  EXPECT_EQ(Message(attention, 1, 0, 65 * kMiB), "");
  // Matrices of 64 x 64 and an input of 64 in each layer, and the value anchor's input: 2 · (2 · 4160 + 64) floats.
  const std::string rwkv = "rwkv7 { num_heads: 1 }";
  EXPECT_THAT(Message(rwkv, 2, 8, 1000),
              HasSubstr("states of 2 x 1 token take 65.5 KiB and this machine has 1000 B available; choose fewer "
                        "channels or layers"));
}

TEST(CheckStateFits, NamesTheChunkLenOfABlockThatIsTooLarge) {
  for (const char* mixer : {"kvm { projections { num_heads: 1 rotary_dim: 32 } chunk_len: 65536 }",
                            "block_window { projections { num_heads: 1 } chunk_len: 65536 }"}) {
    EXPECT_EQ(Message(mixer, 1, 5, 70 * kMiB), "") << mixer;
    EXPECT_THAT(Message(mixer, 1, 5, 60 * kMiB),
                HasSubstr("; mixer \"m\" begins with a whole block of chunk_len 65536 tokens: choose a smaller "
                          "chunk_len"))
        << mixer;
    EXPECT_THAT(Message(mixer, 2, 5, 70 * kMiB), HasSubstr("states of 2 x 1 token take 128")) << mixer;
  }
  EXPECT_THAT(Message("ovq { projections { num_heads: 1 } chunk_len: 65536 }", 1, 5, 60 * kMiB),
              HasSubstr("block of chunk_len (ovq_chunk_size) 65536 tokens"));
}

TEST(CheckStateFits, KnowsNothingWithoutTheMachinesSize) {
  EXPECT_EQ(Message("attention { projections { num_heads: 1 } }", 1, int64_t{1} << 40, 0), "");
}

}  // namespace
}  // namespace kvm
