#ifndef KVM_STATE_GROWING_BUFFER_H_
#define KVM_STATE_GROWING_BUFFER_H_

// Bytes for arrays of rows that become more over time. They start on a cache line, so that no vector load of a row or
// panel straddles two lines, and are zero where never written.
//
//   GrowingBuffer sums;
//   sums.Resize(rows * row_bytes);
//
// On Linux a large buffer grows by moving its pages to other addresses instead of copying what is in them, and its room
// for further growth takes no memory until it is written to.

#include <cstdint>

namespace kvm {

// Copies are deep and have no room to spare. A buffer that was moved from is empty. Thread-compatible.
class GrowingBuffer {
 public:
  GrowingBuffer() = default;
  GrowingBuffer(const GrowingBuffer& other);
  GrowingBuffer(GrowingBuffer&& other) noexcept { Swap(other); }
  GrowingBuffer& operator=(GrowingBuffer other) noexcept {
    Swap(other);
    return *this;
  }
  ~GrowingBuffer();

  int64_t size() const { return size_; }

  // Keeps the bytes within both sizes, at another address when there is no room for more here. Bytes that are added
  // are zero as long as nobody wrote there before an earlier Resize left them out. Throws std::bad_alloc and changes
  // nothing when there is no memory.
  void Resize(int64_t size);

  // Null until the size is more than zero.
  void* data() { return data_; }
  const void* data() const { return data_; }
  float* floats() { return static_cast<float*>(data_); }
  const float* floats() const { return static_cast<const float*>(data_); }

 private:
  void Swap(GrowingBuffer& other) noexcept;
  // Makes room for this many bytes in all.
  void Grow(int64_t capacity);

  void* data_ = nullptr;
  int64_t size_ = 0;
  int64_t capacity_ = 0;
  bool is_mapped_ = false;  // otherwise from operator new
};

}  // namespace kvm

#endif  // KVM_STATE_GROWING_BUFFER_H_
