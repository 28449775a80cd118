#include "kvm/io/torch/rwkv_names.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "kvm/base/check.h"

namespace kvm {

RwkvName ToRwkvName(absl::string_view parameter) {
  RwkvName official;
  official.name = absl::StrReplaceAll(parameter, {{"transformer.wte.", "emb."},
                                                  {"transformer.ln_emb.", "blocks.0.ln0."},
                                                  {"transformer.ln_head.", "ln_out."},
                                                  {"lm_head.", "head."},
                                                  {"transformer.h.", "blocks."},
                                                  {".ln_attn.", ".ln1."},
                                                  {".ln_mlp.", ".ln2."},
                                                  {".attn.", ".att."},
                                                  {".mlp.x_k", ".ffn.x_k"},
                                                  {".mlp.c_fc.", ".ffn.key."},
                                                  {".mlp.c_proj.", ".ffn.value."}});
  for (const char* low_rank : {"w1", "w2", "a1", "a2", "v1", "v2", "g1", "g2"}) {
    if (!absl::EndsWith(official.name, absl::StrCat(".att.", low_rank, ".weight"))) continue;
    official.name = std::string(absl::StripSuffix(official.name, ".weight"));
    official.transposed = true;
  }
  return official;
}

bool IsUnusedValueGate(absl::string_view rwkv_name) {
  return rwkv_name == "blocks.0.att.v0" || rwkv_name == "blocks.0.att.v1" || rwkv_name == "blocks.0.att.v2";
}

Shape Transposed(const Shape& shape) {
  CheckEq(static_cast<int64_t>(shape.size()), 2, "the extents of a matrix");
  return {shape[1], shape[0]};
}

Tensor Transposed(const TensorView& matrix) {
  Tensor transposed(matrix.dtype, Transposed(matrix.shape));
  const size_t element = static_cast<size_t>(SizeOf(matrix.dtype));
  const size_t rows = static_cast<size_t>(matrix.shape[0]), columns = static_cast<size_t>(matrix.shape[1]);
  const char* in = static_cast<const char*>(matrix.data);
  char* out = static_cast<char*>(transposed.bytes());
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; ++column) {
      std::memcpy(out + (column * rows + row) * element, in + (row * columns + column) * element, element);
    }
  }
  return transposed;
}

}  // namespace kvm
