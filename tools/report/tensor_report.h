#ifndef KVM_TOOLS_REPORT_TENSOR_REPORT_H_
#define KVM_TOOLS_REPORT_TENSOR_REPORT_H_

// What a source of tensors holds.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/weights/weight_source.h"
#include "nlohmann/json.hpp"
#include "tools/cli/console.h"

namespace kvm {

// "124 tensors, 1.2 GiB: BF16 1.2 GiB, I64 8 B".
std::string SummarizeTensors(const WeightSource& source);

// A line for every tensor: name, dtype, shape, bytes.
std::string ListTensors(const WeightSource& source);

int64_t TotalBytes(const WeightSource& source);

// {"tensors": number, "bytes": ..., "dtypes": {"F32": bytes}}, and with `list` a "list" of all.
nlohmann::json TensorsToJson(const WeightSource& source, bool list);

// A tensor with numbers that are none.
struct BrokenTensor {
  std::string name;  // in the file
  int64_t nans = 0;
  int64_t infinities = 0;
  int64_t elements = 0;
};

// Reads every byte. Interrupted when the user is.
absl::StatusOr<std::vector<BrokenTensor>> FindBrokenTensors(const WeightSource& source, Console& console);

}  // namespace kvm

#endif  // KVM_TOOLS_REPORT_TENSOR_REPORT_H_
