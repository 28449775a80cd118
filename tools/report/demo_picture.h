#ifndef KVM_TOOLS_REPORT_DEMO_PICTURE_H_
#define KVM_TOOLS_REPORT_DEMO_PICTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvm/kernels/dtype.h"
#include "kvm/model/stack/stack.pb.h"

namespace kvm {

// What was measured at one context length.
struct DemoPoint {
  int64_t context = 0;
  int64_t rows = 0;
  int64_t state_bytes = 0;
  int64_t full_cache_bytes = 0;
  double prefill_tokens_per_second = 0;  // since the point before
  double decode_seconds_per_token = 0;
};

// An SVG chart of the state's bytes and a full cache's against context: as measured at the points (at least one), and
// as computed from there to a million tokens.
std::string DrawDemoPicture(const StackSpec& spec, DType state_dtype, const std::vector<DemoPoint>& points);

}  // namespace kvm

#endif  // KVM_TOOLS_REPORT_DEMO_PICTURE_H_
