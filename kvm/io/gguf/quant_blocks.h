#ifndef KVM_IO_GGUF_QUANT_BLOCKS_H_
#define KVM_IO_GGUF_QUANT_BLOCKS_H_

// The types that elements of a GGUF file may have, and the float32 numbers that their blocks stand for.
//
//   std::vector<float> row(width);
//   DequantizeBlocks(BlockType::kQ4_1, bytes.subspan(r * row_bytes, row_bytes), absl::MakeSpan(row));

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvm/kernels/dtype.h"

namespace kvm {

// With the numbers that the format gives them. Layouts of the quantized ones, byte by byte: docs/formats/gguf.md.
enum class BlockType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kBF16 = 30,
};

// A row of a tensor is a whole number of blocks.
struct BlockSize {
  int64_t elements = 0;  // 1, 32 or 256
  int64_t bytes = 0;
};

// "F32", "Q4_1", "Q6_K", ...
absl::string_view Name(BlockType type);

BlockSize SizeOf(BlockType type);

// What the elements are where they are no quantized ones; nothing where they are.
std::optional<DType> DTypeOf(BlockType type);

// The type with a number of the format; nothing when it is none of the above.
std::optional<BlockType> BlockTypeOf(uint32_t number);

// What the format calls the types that we do not read ("IQ4_XS"); "" for numbers without a meaning.
absl::string_view NameOfUnreadType(uint32_t number);

// "F32, F16, BF16, ...", for messages.
absl::string_view ReadableTypes();

// The numbers of whole blocks, in their order: float32, each computed with one rounding a product and a sum, as the
// format's own tools do. bytes: n blocks of a quantized type, F32, F16 or BF16, anywhere in memory; out: their
// elements.
void DequantizeBlocks(BlockType type, absl::Span<const uint8_t> bytes, absl::Span<float> out);

}  // namespace kvm

#endif  // KVM_IO_GGUF_QUANT_BLOCKS_H_
