#ifndef KVM_MODEL_WEIGHTS_ORTHOGONAL_H_
#define KVM_MODEL_WEIGHTS_ORTHOGONAL_H_

#include "absl/functional/function_ref.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/model/weights/random_stream.h"

namespace kvm {

// Fills a dense matrix with gain times a random orthogonal one: its rows are orthonormal, or its columns when there are
// fewer columns than rows. Gram–Schmidt of a Gaussian matrix, done twice. The same bits for any number of threads.
// Once `cancelled`, asked now and then and on any thread, says so, what the matrix holds means nothing.
void FillOrthogonal(
    const RandomStream& random, double gain, MatrixView<float> matrix, ThreadPool& pool,
    absl::FunctionRef<bool()> cancelled = [] { return false; });

}  // namespace kvm

#endif  // KVM_MODEL_WEIGHTS_ORTHOGONAL_H_
