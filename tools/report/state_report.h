#ifndef KVM_TOOLS_REPORT_STATE_REPORT_H_
#define KVM_TOOLS_REPORT_STATE_REPORT_H_

// What sequences cost at contexts of 1K to 1M tokens. Where a budget adapts to what is read, sizes are upper bounds,
// and tables mark them with "<=".

#include <string>

#include "kvm/kernels/dtype.h"
#include "kvm/model/stack/stack.pb.h"
#include "nlohmann/json.hpp"

namespace kvm {

// One sequence beside a full cache, a line for each context.
std::string StateSizeTable(const StackSpec& spec, DType state_dtype);
// [{"context", "rows", "state_bytes", "full_cache_bytes", "upper_bound"}].
nlohmann::json StateSizesToJson(const StackSpec& spec, DType state_dtype);

// A line for each mixer: rows (where any mixer has some) and bytes of one layer, and bytes of all layers that have this
// mixer. The last of these and what layers keep beside their mixers add up to the states of StateSizeTable.
std::string StateGrowthTable(const StackSpec& spec, DType state_dtype);
// {"mixers": [{"name", "layers", "upper_bound", "sizes": [{"context", "rows", "layer_bytes", "bytes"}]}],
//  "shift_history_bytes"}.
nlohmann::json StateGrowthToJson(const StackSpec& spec, DType state_dtype);

}  // namespace kvm

#endif  // KVM_TOOLS_REPORT_STATE_REPORT_H_
