#include "recall.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/kernels/cpu/slot_attention.h"
#include "kvm/kernels/key_panels.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/thread_pool.h"

absl::StatusOr<kvm::Tensor> Recall(const std::string& path) {
  const auto file = kvm::SafetensorsFile::Open(path);
  if (!file.ok()) return file.status();
  const kvm::TensorView* queries = (*file)->Find("queries");
  const kvm::TensorView* keys = (*file)->Find("keys");
  const kvm::TensorView* values = (*file)->Find("values");
  for (const kvm::TensorView* tensor : {queries, keys, values}) {
    if (tensor == nullptr || tensor->shape.size() != 2) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": expected queries, keys and values of two dimensions"));
    }
  }
  const int64_t n = queries->shape[0];
  const int64_t count = keys->shape[0];
  const int64_t dim = queries->shape[1];
  const int64_t value_dim = values->shape[1];
  if (keys->shape[1] != dim || values->shape[0] != count || count == 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": queries ", kvm::ToString(queries->shape), ", keys ",
                                                   kvm::ToString(keys->shape), " and values ",
                                                   kvm::ToString(values->shape), " do not fit together"));
  }

  const std::vector<float> rows = kvm::ReadFloats(*keys);
  kvm::Tensor panels(kvm::DType::kF32, {kvm::KeyPanelElements(count, dim)});
  kvm::PackKeys({rows.data(), count, dim}, /*first=*/0, kvm::DType::kF32, panels.bytes());
  const std::vector<float> query_rows = kvm::ReadFloats(*queries);
  const std::vector<float> value_rows = kvm::ReadFloats(*values);
  kvm::Tensor out(kvm::DType::kF32, {n, value_dim});

  kvm::KeyValueSegment memory;
  memory.keys = panels.bytes();
  memory.values = value_rows.data();
  memory.count = count;
  memory.is_state = true;
  kvm::AttentionHead head;
  head.queries = {query_rows.data(), n, dim};
  head.out = {out.floats().data(), n, value_dim};
  head.segments = {&memory, 1};
  kvm::ThreadPool pool(1);
  kvm::SlotAttention({&head, 1}, pool);
  return out;
}
