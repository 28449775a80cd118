#ifndef LAST_LOGITS_H_
#define LAST_LOGITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

// What the model in a folder says about the token behind these.
absl::StatusOr<std::vector<float>> LastLogits(const std::string& path, const std::vector<int32_t>& tokens);

#endif  // LAST_LOGITS_H_
