#ifndef KVM_TOOLS_CLI_PROGRESS_H_
#define KVM_TOOLS_CLI_PROGRESS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "tools/cli/console.h"

namespace kvm {

// How far a long step has come, on console.err: on a terminal one line that is written over, elsewhere a plain line now
// and then. Steps of less than a second say nothing.
class Progress {
 public:
  // "prefill: 4,096 of 16,384 tokens, 812 tokens/s, 15.1 s left"
  Progress(Console& console, std::string what, std::string unit, int64_t total);
  ~Progress() { ClearLine(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Reaching the total clears the line.
  void Update(int64_t done);

 private:
  void ClearLine();

  Console& console_;
  const std::string what_;
  const std::string unit_;
  const int64_t total_;
  const absl::Time start_;
  absl::Time next_;
  bool line_is_open_ = false;
};

}  // namespace kvm

#endif  // KVM_TOOLS_CLI_PROGRESS_H_
