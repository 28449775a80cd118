#ifndef KVM_IO_TORCH_RWKV_CHECKPOINT_H_
#define KVM_IO_TORCH_RWKV_CHECKPOINT_H_

// Official RWKV-7 checkpoints ("x070") as stacks, and stacks as official checkpoints. The tensors are the same, under
// other names, and the low-rank matrices are stored the other way round; docs/formats/rwkv_pth.md lists them.

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/io/tensors/tensor_stream.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

// Whether a file's tensors have the names of RWKV checkpoints, of whatever version; not all need be there.
bool HasRwkvNames(const WeightSource& file);

// What the names are, for messages about a file whose tensors have other ones: with something before those of RWKV-7,
// as wrappers of modules leave there ("module.blocks.0..."), or quite different.
std::string DescribeForeignNames(const WeightSource& file);

struct RwkvCheckpoint {
  StackSpec spec;                         // all its sizes, from the tensors' shapes
  std::unique_ptr<WeightSource> weights;  // exactly the spec's parameters, in the file's dtypes
};

// Takes the tensors of a file for a stack. Only the low-rank matrices are copied. InvalidArgument that lists all
// tensors that are missing, unexpected, mis-shaped or not floating point, by their names in the file. Block 0 may lack
// v0, v1 and v2, which have no effect there: they become zeros.
absl::StatusOr<RwkvCheckpoint> ReadRwkvCheckpoint(std::shared_ptr<const WeightSource> file);

// Writes a PyTorch file with official names, the weights' own dtypes unless `writing` says otherwise. Atomic. v0, v1
// and v2 of block 0 are left out when they are all zero; a tied head is written out. InvalidArgument that lists what
// official checkpoints cannot hold: layers that are not of one RWKV-7 mixer with token shift, an MLP without token
// shift, lambdas, skip connections, a residual scale, a softcap; and for weights that are not the spec's.
absl::Status WriteRwkvCheckpoint(const std::string& path, const StackSpec& spec, const WeightSource& weights,
                                 const TensorWriting& writing = {});

}  // namespace kvm

#endif  // KVM_IO_TORCH_RWKV_CHECKPOINT_H_
