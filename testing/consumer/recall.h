#ifndef RECALL_H_
#define RECALL_H_

#include <string>

#include "absl/status/statusor.h"
#include "kvm/kernels/tensor.h"

// Reads float tensors "queries" [n, d], "keys" [m, d] and "values" [m, v] from a safetensors file and returns
// softmax(queries·keysᵀ)·values, [n, v]. InvalidArgument, naming the file, when they are missing or do not fit
// together.
absl::StatusOr<kvm::Tensor> Recall(const std::string& path);

#endif  // RECALL_H_
