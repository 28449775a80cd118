#include "kvm/io/gguf/quant_blocks.h"

#include <array>
#include <cstring>

#include "kvm/base/check.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/half.h"

namespace kvm {
namespace {

struct TypeRecord {
  BlockType type;
  absl::string_view name;
  BlockSize size;
  std::optional<DType> dtype;
};

constexpr std::array<TypeRecord, 18> kTypes = {{
    {BlockType::kF32, "F32", {1, 4}, DType::kF32},
    {BlockType::kF16, "F16", {1, 2}, DType::kF16},
    {BlockType::kQ4_0, "Q4_0", {32, 18}, std::nullopt},
    {BlockType::kQ4_1, "Q4_1", {32, 20}, std::nullopt},
    {BlockType::kQ5_0, "Q5_0", {32, 22}, std::nullopt},
    {BlockType::kQ5_1, "Q5_1", {32, 24}, std::nullopt},
    {BlockType::kQ8_0, "Q8_0", {32, 34}, std::nullopt},
    {BlockType::kQ2_K, "Q2_K", {256, 84}, std::nullopt},
    {BlockType::kQ3_K, "Q3_K", {256, 110}, std::nullopt},
    {BlockType::kQ4_K, "Q4_K", {256, 144}, std::nullopt},
    {BlockType::kQ5_K, "Q5_K", {256, 176}, std::nullopt},
    {BlockType::kQ6_K, "Q6_K", {256, 210}, std::nullopt},
    {BlockType::kI8, "I8", {1, 1}, DType::kI8},
    {BlockType::kI16, "I16", {1, 2}, DType::kI16},
    {BlockType::kI32, "I32", {1, 4}, DType::kI32},
    {BlockType::kI64, "I64", {1, 8}, DType::kI64},
    {BlockType::kF64, "F64", {1, 8}, DType::kF64},
    {BlockType::kBF16, "BF16", {1, 2}, DType::kBF16},
}};

const TypeRecord& RecordOf(BlockType type) {
  for (const TypeRecord& record : kTypes) {
    if (record.type == type) return record;
  }
  Check(false, "a type of BlockType");
  return kTypes[0];
}

float Half(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return HalfToFloat(bits);
}

uint32_t Word(const uint8_t* at) {
  uint32_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

// Blocks of 32: element i < 16 has the low half of byte i, element i + 16 the high one.
constexpr int kSmall = 32;
int Nibble(const uint8_t* bytes, int i) { return i < 16 ? bytes[i] & 15 : bytes[i - 16] >> 4; }

// half d, 16 bytes of 4 bits q: d·(q − 8).
void DequantizeQ4_0(const uint8_t* block, float* out) {
  const float d = Half(block);
  for (int i = 0; i < kSmall; ++i) out[i] = d * static_cast<float>(Nibble(block + 2, i) - 8);
}

// half d, half m, 16 bytes of 4 bits q: d·q + m.
void DequantizeQ4_1(const uint8_t* block, float* out) {
  const float d = Half(block), m = Half(block + 2);
  for (int i = 0; i < kSmall; ++i) out[i] = d * static_cast<float>(Nibble(block + 4, i)) + m;
}

// half d, 32 fifth bits, 16 bytes of 4 bits: d·(q − 16).
void DequantizeQ5_0(const uint8_t* block, float* out) {
  const float d = Half(block);
  const uint32_t fifth = Word(block + 2);
  for (int i = 0; i < kSmall; ++i) {
    const int q = Nibble(block + 6, i) | static_cast<int>(fifth >> i & 1) << 4;
    out[i] = d * static_cast<float>(q - 16);
  }
}

// half d, half m, 32 fifth bits, 16 bytes of 4 bits: d·q + m.
void DequantizeQ5_1(const uint8_t* block, float* out) {
  const float d = Half(block), m = Half(block + 2);
  const uint32_t fifth = Word(block + 4);
  for (int i = 0; i < kSmall; ++i) {
    const int q = Nibble(block + 8, i) | static_cast<int>(fifth >> i & 1) << 4;
    out[i] = d * static_cast<float>(q) + m;
  }
}

// half d, 32 int8 q: d·q.
void DequantizeQ8_0(const uint8_t* block, float* out) {
  const float d = Half(block);
  for (int i = 0; i < kSmall; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

// Blocks of 256 are cut into groups with scales of their own: 16 of 16 elements, or 8 of 32.
constexpr int kLarge = 256;

// 2 bits of element i: 128 elements share 32 bytes, each run of 32 has its two bits of all of them.
int TwoBits(const uint8_t* bytes, int i) { return bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3; }

// 16 bytes with a scale (low half) and a minimum (high half) for each group of 16, 64 bytes of 2 bits q, half d,
// half dmin: d·scale·q − dmin·minimum.
void DequantizeQ2_K(const uint8_t* block, float* out) {
  const float d = Half(block + 80), dmin = Half(block + 82);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(block[group] & 15);
    const float minimum = dmin * static_cast<float>(block[group] >> 4);
    for (int i = group * 16; i < group * 16 + 16; ++i) {
      out[i] = scale * static_cast<float>(TwoBits(block + 16, i)) - minimum;
    }
  }
}

// 32 bytes of third bits (bit i/32 of byte i mod 32), 64 bytes of 2 bits, 12 bytes with a 6-bit scale for each group
// of 16, half d: d·(scale − 32)·(q − 4), where q has 3 bits.
void DequantizeQ3_K(const uint8_t* block, float* out) {
  const uint8_t* const scales = block + 96;
  const float d = Half(block + 108);
  for (int group = 0; group < 16; ++group) {
    // Four bits of group g are in byte g mod 8, the low ones first; its upper two in byte 8 + g mod 4, at 2·(g / 4).
    const int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
    const int high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    for (int i = group * 16; i < group * 16 + 16; ++i) {
      const int third = block[i % 32] >> (i / 32) & 1;
      out[i] = scale * static_cast<float>((TwoBits(block + 32, i) | third << 2) - 4);
    }
  }
}

// A scale and a minimum of 6 bits for each group of 32, in 12 bytes: those of groups 0 to 3 are the low six bits of
// bytes g and 4 + g; of groups 4 to 7 the low four bits are the halves of byte 4 + g, and the upper two are the upper
// two of bytes g − 4 and g.
struct ScaleAndMinimum {
  int scale;
  int minimum;
};
ScaleAndMinimum SixBits(const uint8_t* bytes, int group) {
  if (group < 4) return {bytes[group] & 63, bytes[4 + group] & 63};
  return {(bytes[4 + group] & 15) | bytes[group - 4] >> 6 << 4, bytes[4 + group] >> 4 | bytes[group] >> 6 << 4};
}

// 4 bits of element i: 64 elements share 32 bytes, the first 32 have their low halves.
int FourBits(const uint8_t* bytes, int i) { return bytes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15; }

// half d, half dmin, 12 bytes of SixBits, 128 bytes of 4 bits q: d·scale·q − dmin·minimum.
void DequantizeQ4_K(const uint8_t* block, float* out) {
  const float d = Half(block), dmin = Half(block + 2);
  for (int group = 0; group < 8; ++group) {
    const ScaleAndMinimum six = SixBits(block + 4, group);
    const float scale = d * static_cast<float>(six.scale), minimum = dmin * static_cast<float>(six.minimum);
    for (int i = group * 32; i < group * 32 + 32; ++i) {
      out[i] = scale * static_cast<float>(FourBits(block + 16, i)) - minimum;
    }
  }
}

// The same with 32 bytes of fifth bits (bit g of byte i mod 32) before the 4 bits.
void DequantizeQ5_K(const uint8_t* block, float* out) {
  const float d = Half(block), dmin = Half(block + 2);
  for (int group = 0; group < 8; ++group) {
    const ScaleAndMinimum six = SixBits(block + 4, group);
    const float scale = d * static_cast<float>(six.scale), minimum = dmin * static_cast<float>(six.minimum);
    for (int i = group * 32; i < group * 32 + 32; ++i) {
      const int fifth = block[16 + i % 32] >> group & 1;
      out[i] = scale * static_cast<float>(FourBits(block + 48, i) | fifth << 4) - minimum;
    }
  }
}

// 128 bytes of 4 bits, 64 bytes of 2 upper bits, 16 int8 scales of groups of 16, half d: d·scale·(q − 32).
void DequantizeQ6_K(const uint8_t* block, float* out) {
  const float d = Half(block + 208);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(block[192 + group]));
    for (int i = group * 16; i < group * 16 + 16; ++i) {
      // 128 elements share 64 bytes: the first 64 have their low halves.
      const int low = block[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
      out[i] = scale * static_cast<float>((low | TwoBits(block + 128, i) << 4) - 32);
    }
  }
}

void DequantizeF16(const uint8_t* block, float* out) { *out = Half(block); }
void DequantizeF32(const uint8_t* block, float* out) { std::memcpy(out, block, sizeof(*out)); }
void DequantizeBF16(const uint8_t* block, float* out) {
  BFloat16 x;
  std::memcpy(&x, block, sizeof(x));
  *out = ToFloat(x);
}

using DequantizeBlock = void (*)(const uint8_t* block, float* out);

DequantizeBlock FunctionOf(BlockType type) {
  switch (type) {
    case BlockType::kF32:
      return DequantizeF32;
    case BlockType::kF16:
      return DequantizeF16;
    case BlockType::kBF16:
      return DequantizeBF16;
    case BlockType::kQ4_0:
      return DequantizeQ4_0;
    case BlockType::kQ4_1:
      return DequantizeQ4_1;
    case BlockType::kQ5_0:
      return DequantizeQ5_0;
    case BlockType::kQ5_1:
      return DequantizeQ5_1;
    case BlockType::kQ8_0:
      return DequantizeQ8_0;
    case BlockType::kQ2_K:
      return DequantizeQ2_K;
    case BlockType::kQ3_K:
      return DequantizeQ3_K;
    case BlockType::kQ4_K:
      return DequantizeQ4_K;
    case BlockType::kQ5_K:
      return DequantizeQ5_K;
    case BlockType::kQ6_K:
      return DequantizeQ6_K;
    case BlockType::kI8:
    case BlockType::kI16:
    case BlockType::kI32:
    case BlockType::kI64:
    case BlockType::kF64:
      break;
  }
  return nullptr;
}

}  // namespace

absl::string_view Name(BlockType type) { return RecordOf(type).name; }

BlockSize SizeOf(BlockType type) { return RecordOf(type).size; }

std::optional<DType> DTypeOf(BlockType type) { return RecordOf(type).dtype; }

std::optional<BlockType> BlockTypeOf(uint32_t number) {
  for (const TypeRecord& record : kTypes) {
    if (static_cast<uint32_t>(record.type) == number) return record.type;
  }
  return std::nullopt;
}

absl::string_view NameOfUnreadType(uint32_t number) {
  constexpr absl::string_view kNames[] = {
      "",      "",       "",      "", "Q4_2", "Q4_3",    "",       "",        "",      "Q8_1",   "",
      "",      "",       "",      "", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S",
      "IQ2_S", "IQ4_XS", "",      "", "",     "",        "",       "IQ1_M",   "",      "",       "",
      "",      "TQ1_0",  "TQ2_0", "", "",     "",        "MXFP4",  "NVFP4",   "Q1_0"};
  return number < sizeof(kNames) / sizeof(kNames[0]) ? kNames[number] : "";
}

absl::string_view ReadableTypes() {
  return "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, F64, I8, I16, I32, I64";
}

void DequantizeBlocks(BlockType type, absl::Span<const uint8_t> bytes, absl::Span<float> out) {
  const DequantizeBlock dequantize = FunctionOf(type);
  Check(dequantize != nullptr, "a quantized type, F32, F16 or BF16");
  const BlockSize size = SizeOf(type);
  const int64_t blocks = static_cast<int64_t>(bytes.size()) / size.bytes;
  CheckEq(static_cast<int64_t>(bytes.size()), blocks * size.bytes, "bytes.size()");
  CheckEq(static_cast<int64_t>(out.size()), blocks * size.elements, "out.size()");
  for (int64_t i = 0; i < blocks; ++i) dequantize(bytes.data() + i * size.bytes, out.data() + i * size.elements);
}

}  // namespace kvm
