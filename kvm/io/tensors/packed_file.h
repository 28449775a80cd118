#ifndef KVM_IO_TENSORS_PACKED_FILE_H_
#define KVM_IO_TENSORS_PACKED_FILE_H_

// A packed model (.kvm): one file with a stack and its weights in the order in which products read them, so that a
// model is ready as soon as the file is mapped. Processes that map the same file share its memory.

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/io/tensors/tensor_stream.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

struct PackedModel {
  StackSpec spec;
  uint64_t fingerprint = 0;                   // as the file states it, by the rule of its version
  std::map<std::string, std::string> config;  // see ModelFolder::config
  // Has panels of all matrices, and memory that lasts; makes row-major copies of matrices only when asked for them.
  std::unique_ptr<WeightSource> weights;
};

// Maps a file and checks its header: nothing of the data is read, so that it takes the same few milliseconds for any
// size. The file must not shrink while it is mapped. InvalidArgument, naming `path`, for anything but a well-formed
// file that holds exactly the tensors of its stack.
absl::StatusOr<PackedModel> OpenPackedModel(const std::string& path);

// Writes a file. Atomic. Matrices keep their dtype unless `writing` says otherwise, except that F16 is widened to F32
// (and remembered); where `weights` has panels of int8 these are written. The fingerprint is of what is stored.
// InvalidArgument for other dtypes than F32, BF16 and F16, and as CheckWeights.
absl::Status WritePackedModel(const std::string& path, const StackSpec& spec, const WeightSource& weights,
                              const std::map<std::string, std::string>& config, const TensorWriting& writing = {});

}  // namespace kvm

#endif  // KVM_IO_TENSORS_PACKED_FILE_H_
