#include "kvm/model/stack/stack_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {

StackPlan MakeStackPlan(const StackSpec& spec, const MixerKinds& kinds) {
  StackPlan plan;
  plan.spec = spec;
  const int num_layers = spec.layers_size();
  for (int i = 0; i < num_layers; ++i) {
    LayerPlan layer;
    layer.mixer = MixerIndex(spec, i);
    layer.prefix = absl::StrCat("transformer.h.", i, ".");
    if (const int anchor = AnchorLayer(spec, i, kinds); anchor >= 0) {
      std::vector<int>& anchors = plan.anchor_layers;
      const auto known = std::find(anchors.begin(), anchors.end(), anchor);
      layer.anchor = static_cast<int>(known - anchors.begin());
      if (known == anchors.end()) anchors.push_back(anchor);
    }
    if (spec.skip_connections()) {
      layer.pushes_skip = i < num_layers / 2;
      if (i >= num_layers / 2) layer.takes_skip = i - num_layers / 2;
    }
    plan.layers.push_back(std::move(layer));
  }
  return plan;
}

}  // namespace kvm
