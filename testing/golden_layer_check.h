#ifndef TESTING_GOLDEN_LAYER_CHECK_H_
#define TESTING_GOLDEN_LAYER_CHECK_H_

// Compares a single layer with numbers that its authors' own code computed.
//
// The folder is as golden_layer.h says, with golden.safetensors:
//   x, y F32 [B, T, D]; prefill_len I64 []; y_stepwise F32 [B, T, D] of a prefill, then single tokens
//   initial_NAME: the state that x goes on from; absent where it is zero
//   state.NAME: the state after all tokens; NAME is recurrent [B, HV, K, V] or conv_q, conv_k, conv_v [B, channels,
//   size−1] loss_weights, grad.*: of gradients, not looked at here

#include <string>

#include "absl/status/statusor.h"
#include "testing/golden_check.h"
#include "testing/golden_layer.h"
#include "testing/golden_lines.h"

namespace kvm {

// As CheckGolden, for a folder of which IsLayerFolder is true.
absl::StatusOr<GoldenReport> CheckGoldenLayer(const std::string& folder, const GoldenOptions& options);

}  // namespace kvm

#endif  // TESTING_GOLDEN_LAYER_CHECK_H_
