#ifndef KVM_MODEL_ORTHOGONAL_H_
#define KVM_MODEL_ORTHOGONAL_H_

#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/model/random_stream.h"

namespace kvm {

// Fills a dense matrix with gain times a random orthogonal one: its rows are orthonormal, or its columns when there are
// fewer columns than rows. Gram–Schmidt of a Gaussian matrix, done twice. The same bits for any number of threads.
void FillOrthogonal(const RandomStream& random, double gain, MatrixView<float> matrix, ThreadPool& pool);

}  // namespace kvm

#endif  // KVM_MODEL_ORTHOGONAL_H_
