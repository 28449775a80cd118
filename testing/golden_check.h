#ifndef TESTING_GOLDEN_CHECK_H_
#define TESTING_GOLDEN_CHECK_H_

// Compares the models in this repository with numbers that the authors' own code computed.
//
// A golden folder is a model folder with golden.safetensors beside the weights:
//   input_ids I64 [B, T], prefill_len I64 []
//   logits_full F32 [B, T, V] of one pass; logits_decode F32 [B, T−prefill_len, V] of a prefill, then single tokens
//   hidden_after_layer_I F32 [B, T, D]
//   cache.I.NAME: the state after T tokens, F32 [B, ...] or I64 [], as SequenceState::Export() names it
//   labels I64 [B, T] (−100 ignored) and loss F32 [], both or none
//   debug.angular_freq, debug.alt_angular_freq F32 [dk]: rotary frequencies of the mixers "main" and "alt"
//   grad.*: gradients, not looked at here
//
// A golden folder may also hold a single layer; see golden_layer_check.h.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvm/model/stack/model_options.h"
#include "testing/golden_lines.h"

namespace kvm {

struct GoldenOptions {
  double logits_tolerance = 1e-4;  // absolute
  double hidden_tolerance = 1e-4;  // absolute
  double state_tolerance = 1e-4;   // of the largest entry of a tensor
  double loss_tolerance = 1e-5;    // absolute
  double layer_tolerance = 2e-5;   // of outputs and states of single layers, absolute
  int num_threads = 2;
  ModelOptions model;
};

// Runs the model of `folder` over input_ids: as a whole, with prefill and single tokens, in other cuts, batched and
// separately, and compares everything that golden.safetensors holds. Deviations are lines of the report. An error
// comes back when there is nothing to compare: files that are missing or broken, tensors of wrong shapes or without
// counterpart here, layers of a kind that is not offered.
absl::StatusOr<GoldenReport> CheckGolden(const std::string& folder, const GoldenOptions& options);

}  // namespace kvm

#endif  // TESTING_GOLDEN_CHECK_H_
