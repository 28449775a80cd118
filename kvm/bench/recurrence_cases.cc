#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kvm/bench/operator_data.h"
#include "kvm/kernels/cpu/recurrence/chunked_delta.h"
#include "kvm/kernels/cpu/recurrence/delta_rule.h"
#include "kvm/kernels/cpu/recurrence/wkv7.h"

namespace kvm {
namespace {

// Chunked forms are charged the operations of the step form, so that rates compare as speeds do.
std::string Form(bool chunked) { return chunked ? ", chunks" : ", steps"; }

OperatorCase Rwkv7(const OperatorSizes& sizes, bool chunked) {
  struct Data {
    std::vector<float> r, w, k, v, kappa, a, memory, out;
    std::vector<Wkv7Head> heads;
  };
  constexpr int64_t kHeadDim = 64;
  const int64_t n = sizes.chunk;
  const int64_t heads = std::max<int64_t>(1, sizes.width / kHeadDim);
  const int64_t width = heads * kHeadDim;
  auto data = std::make_shared<Data>();
  data->r = UniformFloats(n * width, -1, 1);
  data->w = UniformFloats(n * width, 0.55f, 0.999f);
  data->k = UniformFloats(n * width, -1, 1);
  data->v = data->k;
  data->kappa = UniformFloats(n * width, -0.2f, 0.2f);
  data->a = UniformFloats(n * width, 0, 1);
  data->memory.resize(static_cast<size_t>(width * kHeadDim));
  data->out.resize(static_cast<size_t>(n * width));
  for (int64_t h = 0; h < heads; ++h) {
    const auto of_head = [&](const std::vector<float>& x) {
      return MatrixView<const float>(x.data(), n, width).Cols(h * kHeadDim, kHeadDim);
    };
    data->heads.push_back({of_head(data->r), of_head(data->w), of_head(data->k), of_head(data->v), of_head(data->kappa),
                           of_head(data->a), data->memory.data() + h * kHeadDim * kHeadDim,
                           MatrixView<float>(data->out.data(), n, width).Cols(h * kHeadDim, kHeadDim)});
  }
  OperatorCase c;
  c.kernel = "rwkv7";
  c.what = absl::StrCat(heads, " heads of ", kHeadDim, ", ", n, " tokens", Form(chunked));
  // Per state element: 2 for κᵀS, 5 for the update, 2 for rᵀS.
  c.flop = 9.0 * static_cast<double>(n * width * kHeadDim);
  c.bytes = 7.0 * static_cast<double>(n * width) * sizeof(float);
  c.run = [=](ThreadPool& pool) { (chunked ? ChunkedWkv7 : Wkv7)(data->heads, pool); };
  return c;
}

// `per_channel`: Kimi Delta Attention, with one decay a key channel; otherwise Gated DeltaNet, with one a head.
OperatorCase Delta(const OperatorSizes& sizes, bool per_channel, bool chunked) {
  struct Data {
    std::vector<float> q, k, v, decay, beta, memory, out;
    std::vector<DeltaRuleHead> heads;
  };
  const int64_t n = sizes.chunk, heads = sizes.heads;
  // The sizes that layers have by default.
  const int64_t dim = sizes.width / heads;
  const int64_t keys = per_channel ? dim : std::max<int64_t>(1, dim * 3 / 4);
  const int64_t values = per_channel ? dim : std::max<int64_t>(1, dim * 3 / 2);
  const int64_t decays = per_channel ? keys : 1;
  auto data = std::make_shared<Data>();
  data->q = UniformFloats(n * heads * keys, -1, 1);
  data->k = UniformFloats(n * heads * keys, -0.15f, 0.15f);
  data->v = UniformFloats(n * heads * values, -1, 1);
  data->decay = UniformFloats(n * heads * decays, 0.55f, 0.999f);
  data->beta = UniformFloats(n * heads, 0, 1);
  data->memory.resize(static_cast<size_t>(heads * keys * values));
  data->out.resize(static_cast<size_t>(n * heads * values));
  for (int64_t h = 0; h < heads; ++h) {
    const auto of_head = [&](const std::vector<float>& x, int64_t cols) {
      return MatrixView<const float>(x.data(), n, heads * cols).Cols(h * cols, cols);
    };
    data->heads.push_back({of_head(data->q, keys), of_head(data->k, keys), of_head(data->v, values),
                           of_head(data->decay, decays), of_head(data->beta, 1),
                           data->memory.data() + h * keys * values,
                           MatrixView<float>(data->out.data(), n, heads * values).Cols(h * values, values)});
  }
  OperatorCase c;
  c.kernel = per_channel ? "kimi delta" : "gated delta net";
  c.what = absl::StrCat(heads, " heads of ", keys, " x ", values, ", ", n, " tokens", Form(chunked));
  // Per state element: 1 for the decay and 2 each for Sᵀk, the update and Sᵀq.
  c.flop = 7.0 * static_cast<double>(n * heads * keys * values);
  c.bytes = static_cast<double>(n * heads * (2 * keys + decays + 1 + 2 * values)) * sizeof(float);
  c.run = [=](ThreadPool& pool) { (chunked ? ChunkedDeltaRule : DeltaRule)(data->heads, pool); };
  return c;
}

}  // namespace

void AppendRecurrenceCases(const OperatorSizes& sizes, std::vector<OperatorCase>* cases) {
  for (const bool chunked : {false, true}) cases->push_back(Rwkv7(sizes, chunked));
  for (const bool per_channel : {false, true}) {
    for (const bool chunked : {false, true}) cases->push_back(Delta(sizes, per_channel, chunked));
  }
}

}  // namespace kvm
