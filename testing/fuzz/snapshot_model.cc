#include "testing/fuzz/snapshot_model.h"

#include "glog/logging.h"
#include "kvm/kernels/dtype.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/stack/stack_spec.h"
#include "testing/conformance/random_weights.h"

namespace kvm {
namespace {

constexpr char kStack[] = R"(
    vocab_size: 12 width: 8 mlp_expansion: 4 mlp_token_shift: true
    mixers { name: "rwkv7" rwkv7 { num_heads: 2 } }
    mixers { name: "kvm" value_anchor: "rwkv7" kvm {
      projections { num_heads: 2 num_kv_heads: 2 qk_head_dim: 4 v_head_dim: 4 rotary_dim: 2 token_shift: true }
      chunk_len: 4 gate_appended_rows: true budget { growth: POWER_LAW factor: 2 min_rows: 4 max_chunks: 1000 } } }
    mixers { name: "swa" attention { window: 5
      projections { num_heads: 1 qk_head_dim: 2 v_head_dim: 2 rotary_dim: 2 } } }
    mixers { name: "window" block_window { chunk_len: 4 num_sinks: 2
      projections { num_heads: 1 qk_head_dim: 2 v_head_dim: 2 rotary_dim: 2 token_shift: true } } }
    mixers { name: "ovq" ovq { chunk_len: 4 max_centroids: 9
      projections { num_heads: 2 qk_head_dim: 4 v_head_dim: 4 rotary_dim: 2 } } }
    mixers { name: "gdn" gated_delta_net { num_heads: 2 v_head_dim: 4 } }
    mixers { name: "kda" kimi_delta { num_heads: 2 } }
    layers: ["rwkv7", "kvm", "swa", "window", "ovq", "gdn", "kda"])";

}  // namespace

std::unique_ptr<LanguageModel> NewSnapshotModel() {
  const auto spec = ParseStackSpec(kStack, "kStack");
  CHECK(spec.ok()) << spec.status();
  ModelOptions options;
  options.state = DType::kI8;
  auto model = LanguageModel::Create(*spec, *RandomWeights(*spec, 1), options);
  CHECK(model.ok()) << model.status();
  return *std::move(model);
}

ModelIdentity SnapshotModelIdentity() { return {7, WeightType::kAsStored, DType::kI8, false, ""}; }

}  // namespace kvm
