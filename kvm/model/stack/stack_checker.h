#ifndef KVM_MODEL_STACK_STACK_CHECKER_H_
#define KVM_MODEL_STACK_STACK_CHECKER_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kvm/model/stack/stack_limits.h"

namespace kvm {

// A field of a StackSpec that cannot be what it is.
struct StackProblem {
  std::string path;      // "mixers[1].kvm.chunk_len"
  std::string got;       // "0"
  std::string expected;  // "a whole number from 1 to 16777216"
};

// As many are kept.
inline constexpr size_t kMaxStackProblems = 100;

inline std::string QuotedName(const std::string& name) { return absl::StrCat("\"", name, "\""); }

// With as many digits as tell the number from all others.
inline std::string NumberText(double value) {
  for (int digits = 6;; ++digits) {
    const std::string text = absl::StrFormat("%.*g", digits, value);
    double read = 0;
    if (digits == 17 || (absl::SimpleAtod(text, &read) && read == value)) return text;
  }
}

// Checks single fields, remembers what was wrong first and counts the rest.
class StackChecker {
 public:
  void Add(const std::string& path, const std::string& got, const std::string& expected) {
    if (count_++ < kMaxStackProblems) problems_.push_back({path, got, expected});
  }

  // Returns whether lowest <= value <= highest.
  bool Whole(const std::string& path, int64_t value, int64_t lowest, int64_t highest = kMaxSpecSize) {
    if (value >= lowest && value <= highest) return true;
    Add(path, absl::StrCat(value), absl::StrCat("a whole number from ", lowest, " to ", highest));
    return false;
  }

  bool Above(const std::string& path, double value, double bound, double highest) {
    if (value > bound && value <= highest) return true;
    Add(path, NumberText(value),
        absl::StrCat("a number above ", NumberText(bound), " and at most ", NumberText(highest)));
    return false;
  }

  bool Finite(const std::string& path, double value) {
    if (std::isfinite(value)) return true;
    Add(path, NumberText(value), "a finite number");
    return false;
  }

  size_t count() const { return count_; }
  std::vector<StackProblem> Take() { return std::move(problems_); }

 private:
  std::vector<StackProblem> problems_;
  size_t count_ = 0;
};

}  // namespace kvm

#endif  // KVM_MODEL_STACK_STACK_CHECKER_H_
