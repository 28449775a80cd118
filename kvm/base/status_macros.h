#ifndef KVM_BASE_STATUS_MACROS_H_
#define KVM_BASE_STATUS_MACROS_H_

// Early return on errors, for functions that return absl::Status or absl::StatusOr.

#include <utility>

#include "absl/status/status.h"
#include "kvm/base/standard.h"

// RETURN_IF_ERROR(Check(x));
#define RETURN_IF_ERROR(expr)                \
  do {                                       \
    absl::Status kvm_status = (expr);        \
    if (!kvm_status.ok()) return kvm_status; \
  } while (false)

// ASSIGN_OR_RETURN(std::string text, ReadFile(path));
#define ASSIGN_OR_RETURN(lhs, expr) KVM_ASSIGN_OR_RETURN(KVM_CONCAT(kvm_result_, __LINE__), lhs, expr)

#define KVM_ASSIGN_OR_RETURN(result, lhs, expr) \
  auto result = (expr);                         \
  if (!result.ok()) return result.status();     \
  lhs = std::move(result).value()
#define KVM_CONCAT(a, b) KVM_CONCAT_INNER(a, b)
#define KVM_CONCAT_INNER(a, b) a##b

#endif  // KVM_BASE_STATUS_MACROS_H_
