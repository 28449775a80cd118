#include "tools/cli/descriptor_stream.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

namespace kvm {
namespace {

// A signal may come just before a wait begins and not end it, so that no wait is longer.
constexpr int kLongestWaitMs = 50;

}  // namespace

DescriptorBuffer::DescriptorBuffer(int descriptor, std::function<bool()> cancelled)
    : descriptor_(descriptor), cancelled_(std::move(cancelled)) {
  struct stat info;
  const bool is_file = fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  // Pipes that take more than this may block in the middle of it.
  most_at_once_ = is_file ? std::numeric_limits<ssize_t>::max() : PIPE_BUF;
  setp(buffer_.data(), buffer_.data() + buffer_.size());
}

bool DescriptorBuffer::AwaitRoom() const {
  while (true) {
    pollfd waiting = {descriptor_, POLLOUT, 0};
    const int ready = poll(&waiting, 1, cancelled_() ? 0 : kLongestWaitMs);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
    if (cancelled_()) return false;
  }
}

bool DescriptorBuffer::Write(const char* data, size_t size) {
  while (size > 0) {
    if (!AwaitRoom()) return false;
    const ssize_t count = write(descriptor_, data, std::min(size, most_at_once_));
    if (count < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (count < 0) continue;
    data += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

int DescriptorBuffer::sync() {
  const bool written = Write(pbase(), static_cast<size_t>(pptr() - pbase()));
  setp(buffer_.data(), buffer_.data() + buffer_.size());
  return written ? 0 : -1;
}

DescriptorBuffer::int_type DescriptorBuffer::overflow(int_type c) {
  if (sync() != 0) return traits_type::eof();
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  return sputc(traits_type::to_char_type(c));
}

}  // namespace kvm
