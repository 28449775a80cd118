#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kvm/bench/operator_data.h"
#include "kvm/kernels/cpu/ovq_update.h"
#include "kvm/kernels/cpu/slot_attention.h"
#include "kvm/kernels/cpu/slot_update.h"
#include "kvm/kernels/key_value.h"

namespace kvm {
namespace {

// Keys that a decoded token's queries see, from memory.
constexpr int64_t kDecodeKeys = 4096;

int64_t HeadDim(const OperatorSizes& sizes) { return sizes.width / sizes.heads; }

// Bytes of a head's keys in panels, and of its keys and values, a cache line at least apart from the next head's.
int64_t KeyBytes(int64_t keys, int64_t dim, DType dtype) { return KeyPanelElements(keys, dim) * SizeOf(dtype); }
int64_t HeadBytes(int64_t keys, int64_t dim, DType dtype) { return 2 * KeyBytes(keys, dim, dtype); }

// All heads of a layer: `queries` of each see `keys` rows. Where rows come from memory each run has others.
OperatorCase Attention(const OperatorSizes& sizes, int64_t queries, int64_t keys, DType dtype, bool from_memory,
                       const ColdMemory& memory) {
  struct Data {
    std::vector<float> queries, out, scales;
    std::vector<KeyValueSegment> segments;
    std::vector<AttentionHead> heads;
    int64_t next = 0;
  };
  const int64_t dim = HeadDim(sizes);
  auto data = std::make_shared<Data>();
  data->queries = UniformFloats(queries * sizes.width, -1, 1);
  data->out.resize(data->queries.size());
  data->scales.assign(static_cast<size_t>(KeyPanelElements(keys, 1)), 0.01f);
  data->segments.resize(static_cast<size_t>(sizes.heads));
  for (int64_t h = 0; h < sizes.heads; ++h) {
    KeyValueSegment& segment = data->segments[static_cast<size_t>(h)];
    segment.dtype = dtype;
    segment.count = keys;
    segment.is_state = true;
    if (dtype == DType::kI8) segment.key_scales = segment.value_scales = data->scales.data();
    AttentionHead head;
    head.queries = MatrixView<const float>(data->queries.data(), queries, sizes.width).Cols(h * dim, dim);
    head.out = MatrixView<float>(data->out.data(), queries, sizes.width).Cols(h * dim, dim);
    head.segments = {&segment, 1};
    head.state_scale = 1 / std::sqrt(static_cast<float>(dim));
    data->heads.push_back(head);
  }
  const int64_t key_bytes = KeyBytes(keys, dim, dtype), head_bytes = HeadBytes(keys, dim, dtype);
  const auto show_rows = [=, &memory](int64_t index) {
    const char* bytes = static_cast<const char*>(memory.Piece(index, sizes.heads * head_bytes));
    for (int64_t h = 0; h < sizes.heads; ++h) {
      KeyValueSegment& segment = data->segments[static_cast<size_t>(h)];
      segment.keys = bytes + h * head_bytes;
      segment.values = bytes + h * head_bytes + key_bytes;
    }
  };
  show_rows(0);
  OperatorCase c;
  c.kernel = "slot attention";
  c.what = absl::StrCat(sizes.heads, " heads, ", queries, queries == 1 ? " query, " : " queries, ", keys, " keys, ",
                        ShortName(dtype));
  c.flop = 4.0 * static_cast<double>(sizes.heads * queries * keys * dim);
  c.bytes = static_cast<double>(sizes.heads * keys * dim * 2 * SizeOf(dtype));
  c.bound = from_memory ? Bound::kReads : Bound::kMatMul;
  c.run = [=](ThreadPool& pool) {
    if (from_memory) show_rows(data->next++);
    SlotAttention(data->heads, pool);
  };
  return c;
}

// All heads of a layer take a chunk of tokens into their rows. None are appended, so that every run does the same.
OperatorCase RowUpdate(const OperatorSizes& sizes) {
  struct Head {
    std::vector<float> key_sums, value_sums, radii, readout_keys, readout_values;
  };
  struct Data {
    std::vector<float> keys, values, weight, bias;
    std::vector<Head> heads;
    std::vector<SlotUpdateHead> updates;
  };
  const int64_t dim = HeadDim(sizes);
  auto data = std::make_shared<Data>();
  data->keys = UniformFloats(sizes.chunk * sizes.width, -1.7f, 1.7f);
  data->values = UniformFloats(sizes.chunk * sizes.width, -1, 1);
  data->weight.assign(static_cast<size_t>(dim), 1.0f);
  data->bias.assign(static_cast<size_t>(dim), 0.0f);
  data->heads.resize(static_cast<size_t>(sizes.heads));
  for (Head& head : data->heads) {
    head.key_sums = UniformFloats(sizes.rows * dim, -1, 1);
    head.value_sums = head.key_sums;
    head.radii.assign(static_cast<size_t>(sizes.rows), 1.0f);
    head.readout_keys = UniformFloats(KeyPanelElements(sizes.rows, dim), -1, 1);
    head.readout_values = head.value_sums;
    const int64_t first_column = static_cast<int64_t>(data->updates.size()) * dim;
    const auto of_head = [&](const std::vector<float>& x) {
      return MatrixView<const float>(x.data(), sizes.chunk, sizes.width).Cols(first_column, dim);
    };
    SlotUpdateHead update;
    update.tokens.keys = of_head(data->keys);
    update.tokens.values = of_head(data->values);
    update.norm = {data->weight, data->bias};
    update.rows.count = update.rows.capacity = sizes.rows;
    update.rows.qk_dim = update.rows.v_dim = dim;
    update.rows.key_sums = head.key_sums.data();
    update.rows.value_sums = head.value_sums.data();
    update.rows.radii = head.radii.data();
    update.rows.readout_keys = head.readout_keys.data();
    update.rows.readout_values = head.readout_values.data();
    data->updates.push_back(update);
  }
  OperatorCase c;
  c.kernel = "routing and update";
  c.what = absl::StrCat(sizes.heads, " heads, ", sizes.chunk, " tokens, ", sizes.rows, " rows");
  c.flop = 2.0 * static_cast<double>(sizes.heads * sizes.chunk * sizes.rows * dim);
  c.bytes = static_cast<double>(sizes.heads * sizes.rows * dim) * sizeof(float);
  c.bound = Bound::kMatMul;
  c.is_chunk_update = true;
  c.run = [=](ThreadPool& pool) {
    ApplyRoutes(absl::MakeSpan(data->updates), RouteTokens(data->updates, pool.memory(), pool), pool);
  };
  return c;
}

// All heads of a layer take a chunk of tokens into their dictionaries, of which none grows.
OperatorCase DictionaryUpdate(const OperatorSizes& sizes) {
  struct Head {
    std::vector<float> keys, values, counts, log_counts;
    OvqDictionary dictionary;
  };
  struct Data {
    std::vector<float> keys, values;
    std::vector<Head> heads;
  };
  const int64_t dim = HeadDim(sizes);
  const int64_t capacity = KeyPanelElements(sizes.centroids, 1);
  auto data = std::make_shared<Data>();
  data->keys = UniformFloats(sizes.ovq_chunk * sizes.width, -0.15f, 0.15f);
  data->values = UniformFloats(sizes.ovq_chunk * sizes.width, -1, 1);
  data->heads.resize(static_cast<size_t>(sizes.heads));
  for (Head& head : data->heads) {
    head.keys = UniformFloats(capacity * dim, -0.15f, 0.15f);
    head.values = head.keys;
    head.counts.assign(static_cast<size_t>(capacity), 1.0f);
    head.log_counts.assign(static_cast<size_t>(capacity), 0.0f);
    head.dictionary.count = sizes.centroids;
    head.dictionary.capacity = capacity;
    head.dictionary.dim = dim;
    head.dictionary.keys = head.keys.data();
    head.dictionary.values = head.values.data();
    head.dictionary.counts = head.counts.data();
    head.dictionary.log_counts = head.log_counts.data();
  }
  OperatorCase c;
  c.kernel = "ovq update";
  c.what = absl::StrCat(sizes.heads, " heads, ", sizes.ovq_chunk, " tokens, ", sizes.centroids, " centroids");
  c.flop = 2.0 * static_cast<double>(sizes.heads * sizes.ovq_chunk * sizes.centroids * dim);
  c.bytes = static_cast<double>(sizes.heads * sizes.centroids * dim) * sizeof(float);
  c.bound = Bound::kMatMul;
  c.run = [=](ThreadPool& pool) {
    pool.ParallelFor(sizes.heads, [&](int64_t h) {
      const auto of_head = [&](const std::vector<float>& x) {
        return MatrixView<const float>(x.data(), sizes.ovq_chunk, sizes.width).Cols(h * dim, dim);
      };
      UpdateDictionary(of_head(data->keys), of_head(data->values), {}, data->heads[static_cast<size_t>(h)].dictionary,
                       pool.memory());
    });
  };
  return c;
}

}  // namespace

int64_t LargestAttentionBytes(const OperatorSizes& sizes) {
  const int64_t keys = std::max(kDecodeKeys, sizes.rows + 2 * sizes.chunk);
  return sizes.heads * HeadBytes(keys, HeadDim(sizes), DType::kF32);
}

void AppendSlotCases(const OperatorSizes& sizes, const ColdMemory& memory, std::vector<OperatorCase>* cases) {
  const auto chunk_attention = [&](int64_t keys) {
    cases->push_back(Attention(sizes, sizes.chunk, keys, DType::kF32, false, memory));
  };
  for (const int64_t keys : {768, 1536, 4096}) chunk_attention(keys);
  // What the queries of a chunk see in a layer: all rows and two chunks of window.
  chunk_attention(sizes.rows + 2 * sizes.chunk);
  cases->back().is_chunk_attention = true;
  cases->push_back(RowUpdate(sizes));
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    cases->push_back(Attention(sizes, 1, kDecodeKeys, dtype, true, memory));
  }
  cases->push_back(DictionaryUpdate(sizes));
}

}  // namespace kvm
