#ifndef KVM_KERNELS_WORK_BUFFER_H_
#define KVM_KERNELS_WORK_BUFFER_H_

#include <algorithm>
#include <cstdint>
#include <memory_resource>

#include "kvm/kernels/aligned_buffer.h"

namespace kvm {

// What one kernel call works in: floats that are zero at first and start on a cache line. They are taken from a memory
// resource and given back to it. One that keeps them for the next call (ThreadPool::memory) makes calls that do not
// allocate.
class WorkBuffer {
 public:
  // `memory` outlives the buffer.
  WorkBuffer(int64_t size, std::pmr::memory_resource* memory)
      : memory_(memory),
        bytes_((static_cast<size_t>(size) * sizeof(float) + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes),
        data_(static_cast<float*>(memory->allocate(bytes_, kCacheLineBytes))) {
    std::fill_n(data_, size, 0.0f);
  }
  ~WorkBuffer() { memory_->deallocate(data_, bytes_, kCacheLineBytes); }
  WorkBuffer(const WorkBuffer&) = delete;
  WorkBuffer& operator=(const WorkBuffer&) = delete;

  float* data() const { return data_; }

 private:
  std::pmr::memory_resource* memory_;
  size_t bytes_;
  float* data_;
};

}  // namespace kvm

#endif  // KVM_KERNELS_WORK_BUFFER_H_
