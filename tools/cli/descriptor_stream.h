#ifndef KVM_TOOLS_CLI_DESCRIPTOR_STREAM_H_
#define KVM_TOOLS_CLI_DESCRIPTOR_STREAM_H_

#include <array>
#include <cstddef>
#include <functional>
#include <streambuf>
#include <utility>

namespace kvm {

// The buffer of a std::ostream that writes to an open file, pipe or terminal, and does not wait for whoever reads it
// once `cancelled` says so, which is asked now and again: writing then fails, and what was not written is lost. The
// descriptor stays open. Thread-compatible.
class DescriptorBuffer : public std::streambuf {
 public:
  DescriptorBuffer(int descriptor, std::function<bool()> cancelled);
  ~DescriptorBuffer() override { sync(); }

 protected:
  int_type overflow(int_type c) override;
  int sync() override;

 private:
  // Whether all of it was written.
  bool Write(const char* data, size_t size);
  // Waits for room. Whether there is some, or an error that writing tells.
  bool AwaitRoom() const;

  const int descriptor_;
  const std::function<bool()> cancelled_;
  size_t most_at_once_;  // that room is enough for
  std::array<char, size_t{1} << 16> buffer_;
};

}  // namespace kvm

#endif  // KVM_TOOLS_CLI_DESCRIPTOR_STREAM_H_
