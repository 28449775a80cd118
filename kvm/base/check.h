#ifndef KVM_BASE_CHECK_H_
#define KVM_BASE_CHECK_H_

// Checks of a call's arguments that stay in every build, -c opt included.
//
// For mistakes of the calling program alone: a matrix of the wrong shape, an index behind the end. A failed check
// prints one sentence to stderr that says which call it was, what it got and what it expected, and aborts. What a
// user's input can cause is an absl::Status instead.
//
//   void MatMul(MatrixView<const float> x, const PackedMatrix& weight, MatrixView<float> out) {
//     CheckEq(x.cols, weight.cols(), "x.cols");
//     CheckEq(out.rows, x.rows, "out.rows");
//
// prints, when it fails: "MatMul: x.cols is 5, expected 6 (kvm/kernels/cpu/matmul.cc:41)".
//
// A check that holds costs a comparison and a branch that is not taken. Make them once a call, not once an element. The
// caller's name and place are the defaults of the last parameter: pass nothing there, unless a function checks on
// behalf of another and hands on the CallSite that it was given.

#include <cstdint>

#include "kvm/base/standard.h"

namespace kvm {

// Where a check stands. As a default argument, Here() is evaluated in the function that calls.
struct CallSite {
  const char* function;
  const char* file;
  int line;

  static constexpr CallSite Here(const char* function = __builtin_FUNCTION(), const char* file = __builtin_FILE(),
                                 int line = __builtin_LINE()) {
    return {function, file, line};
  }
};

namespace check_internal {
[[noreturn, gnu::cold]] void Fail(const char* expected, CallSite site);
[[noreturn, gnu::cold]] void FailCompared(int64_t got, const char* relation, int64_t expected, const char* what,
                                          CallSite site);
[[noreturn, gnu::cold]] void FailBetween(int64_t got, int64_t low, int64_t high, const char* what, CallSite site);
}  // namespace check_internal

// `expected` completes the sentence "expected ...": Check(out.data != x.data, "out to be apart from x").
inline void Check(bool ok, const char* expected, CallSite site = CallSite::Here()) {
  if (__builtin_expect(!ok, 0)) check_internal::Fail(expected, site);
}

// `what` names the number that is checked: CheckEq(x.cols, 6, "x.cols").
inline void CheckEq(int64_t got, int64_t expected, const char* what, CallSite site = CallSite::Here()) {
  if (__builtin_expect(got != expected, 0)) check_internal::FailCompared(got, "", expected, what, site);
}

inline void CheckAtLeast(int64_t got, int64_t least, const char* what, CallSite site = CallSite::Here()) {
  if (__builtin_expect(got < least, 0)) check_internal::FailCompared(got, "at least ", least, what, site);
}

inline void CheckAtMost(int64_t got, int64_t most, const char* what, CallSite site = CallSite::Here()) {
  if (__builtin_expect(got > most, 0)) check_internal::FailCompared(got, "at most ", most, what, site);
}

// low <= got <= high.
inline void CheckBetween(int64_t got, int64_t low, int64_t high, const char* what, CallSite site = CallSite::Here()) {
  if (__builtin_expect(got < low || got > high, 0)) check_internal::FailBetween(got, low, high, what, site);
}

}  // namespace kvm

#endif  // KVM_BASE_CHECK_H_
