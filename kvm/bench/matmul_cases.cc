#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kvm/bench/operator_data.h"
#include "kvm/kernels/cpu/matmul.h"

namespace kvm {
namespace {

constexpr DType kStorages[] = {DType::kF32, DType::kBF16, DType::kI8};

std::string Describe(int64_t rows, int64_t inputs, int64_t outputs, DType storage) {
  return absl::StrCat(rows, rows == 1 ? " row, " : " rows, ", inputs, " -> ", outputs, ", ", ShortName(storage));
}

// Many rows: weights are read again and again from the caches.
OperatorCase ManyRows(int64_t rows, int64_t inputs, int64_t outputs, DType storage) {
  struct Data {
    std::vector<float> x, out;
    PackedMatrix weights;
  };
  auto data = std::make_shared<Data>();
  data->x = UniformFloats(rows * inputs, -1, 1);
  data->out.resize(static_cast<size_t>(rows * outputs));
  const std::vector<float> weights = UniformFloats(inputs * outputs, -0.1f, 0.1f);
  data->weights = PackedMatrix::Pack({DType::kF32, {outputs, inputs}, weights.data()}, storage);
  OperatorCase c;
  c.kernel = "matmul";
  c.what = Describe(rows, inputs, outputs, storage);
  c.flop = 2.0 * static_cast<double>(rows * inputs * outputs);
  c.bytes = static_cast<double>(data->weights.byte_size());
  c.run = [=](ThreadPool& pool) {
    MatMul({data->x.data(), rows, inputs}, data->weights, {data->out.data(), rows, outputs}, pool);
  };
  return c;
}

// One row: every run multiplies with other weights, so that they come from memory.
OperatorCase OneRow(int64_t inputs, int64_t outputs, DType storage, const ColdMemory& memory) {
  struct Data {
    std::vector<float> x, out;
    int64_t next = 0;
  };
  auto data = std::make_shared<Data>();
  data->x = UniformFloats(inputs, -1, 1);
  data->out.resize(static_cast<size_t>(outputs));
  const int64_t bytes = PanelsView{storage, outputs, inputs, nullptr}.byte_size();
  OperatorCase c;
  c.kernel = "matmul";
  c.what = Describe(1, inputs, outputs, storage);
  c.flop = 2.0 * static_cast<double>(inputs * outputs);
  c.bytes = static_cast<double>(bytes);
  c.bound = Bound::kReads;
  c.run = [=, &memory](ThreadPool& pool) {
    const PanelsView panels = {storage, outputs, inputs, memory.Piece(data->next++, bytes)};
    MatMul({data->x.data(), 1, inputs}, PackedMatrix::Borrow(panels), {data->out.data(), 1, outputs}, pool);
  };
  return c;
}

}  // namespace

int64_t LargestMatrixBytes(const OperatorSizes& sizes) {
  int64_t bytes = 0;
  for (const int64_t outputs : {sizes.vocab, sizes.mlp_width}) {
    bytes = std::max(bytes, PanelsView{DType::kF32, outputs, sizes.width, nullptr}.byte_size());
  }
  return std::max(bytes, PanelsView{DType::kF32, sizes.width, sizes.mlp_width, nullptr}.byte_size());
}

void AppendMatMulCases(const OperatorSizes& sizes, const ColdMemory& memory, std::vector<OperatorCase>* cases) {
  for (const DType storage : kStorages) {
    cases->push_back(ManyRows(sizes.chunk, sizes.width, sizes.mlp_width, storage));
    cases->back().is_matmul_peak = storage == DType::kF32;
    cases->push_back(ManyRows(sizes.chunk, sizes.mlp_width, sizes.width, storage));
    cases->push_back(ManyRows(sizes.chunk, sizes.width, sizes.width, storage));
  }
  for (const DType storage : kStorages) {
    cases->push_back(OneRow(sizes.width, sizes.mlp_width, storage, memory));
    cases->push_back(OneRow(sizes.mlp_width, sizes.width, storage, memory));
    cases->push_back(OneRow(sizes.width, sizes.width, storage, memory));
    cases->push_back(OneRow(sizes.width, sizes.vocab, storage, memory));
  }
}

}  // namespace kvm
