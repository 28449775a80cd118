#ifndef KVM_STATE_COPY_ON_WRITE_H_
#define KVM_STATE_COPY_ON_WRITE_H_

// A value that copies share until one of them is written to.
//
//   CopyOnWrite<Block> a(std::make_unique<Block>());
//   CopyOnWrite<Block> b = a;   // no copy of the block
//   b.Mutable().Fill(0);        // b has its own from here on; a's is as it was
//
// Thread-compatible, as a plain value is: two handles may be used on two threads even while they share.

#include <atomic>
#include <memory>
#include <utility>

namespace kvm {

// How a value is copied: its copy constructor, unless it has a Clone() (polymorphic ones do).
template <typename T>
auto CloneValue(const T& value, int) -> decltype(value.Clone()) {
  return value.Clone();
}
template <typename T>
std::unique_ptr<T> CloneValue(const T& value, long) {
  return std::make_unique<T>(value);
}

template <typename T>
class CopyOnWrite {
 public:
  CopyOnWrite() = default;  // no value
  explicit CopyOnWrite(std::unique_ptr<T> value) : shared_(value ? new Shared(std::move(value)) : nullptr) {}
  CopyOnWrite(const CopyOnWrite& other) : shared_(other.shared_) {
    if (shared_ != nullptr) shared_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  CopyOnWrite(CopyOnWrite&& other) noexcept : shared_(std::exchange(other.shared_, nullptr)) {}
  CopyOnWrite& operator=(CopyOnWrite other) noexcept {
    std::swap(shared_, other.shared_);
    return *this;
  }
  ~CopyOnWrite() {
    if (shared_ != nullptr && shared_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete shared_;
  }

  explicit operator bool() const { return shared_ != nullptr; }
  const T* get() const { return shared_ == nullptr ? nullptr : shared_->value.get(); }
  const T& operator*() const { return *get(); }
  const T* operator->() const { return get(); }

  // The value for writing: copied first if it is shared. There must be one. References that get() gave before may show
  // the shared value, which stays as it was.
  T& Mutable() {
    // Acquire: what a former owner read, it has read before this thread writes.
    if (shared_->owners.load(std::memory_order_acquire) != 1) *this = CopyOnWrite(CloneValue(**this, 0));
    return *shared_->value;
  }

  // Whether other handles have the same value. Another thread may change the answer at any time.
  bool is_shared() const { return shared_ != nullptr && shared_->owners.load(std::memory_order_relaxed) > 1; }

 private:
  struct Shared {
    explicit Shared(std::unique_ptr<T> value) : value(std::move(value)) {}
    std::atomic<int> owners{1};
    std::unique_ptr<T> value;
  };

  Shared* shared_ = nullptr;
};

}  // namespace kvm

#endif  // KVM_STATE_COPY_ON_WRITE_H_
