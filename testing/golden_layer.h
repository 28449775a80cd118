#ifndef TESTING_GOLDEN_LAYER_H_
#define TESTING_GOLDEN_LAYER_H_

// A folder that holds a single layer: config.json with "layer" and the constructor arguments that the
// flash-linear-attention library gives it, and weights.safetensors.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/model/mixers/mixer.h"
#include "kvm/model/stack/model_options.h"

namespace kvm {

struct GoldenLayer {
  int64_t width = 0;
  std::unique_ptr<SafetensorsFile> weights;
  std::unique_ptr<Mixer> mixer;  // its states are DeltaNetStates
};

// Whether `folder` is one: its config.json has the key "layer".
bool IsLayerFolder(const std::string& folder);

// InvalidArgument, naming file and field or tensor, for layers other than gated_deltanet and kda, sizes that cannot be,
// and weights that are not those of the config.
absl::StatusOr<GoldenLayer> OpenGoldenLayer(const std::string& folder, WeightType type);

}  // namespace kvm

#endif  // TESTING_GOLDEN_LAYER_H_
