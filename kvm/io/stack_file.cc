#include "kvm/io/stack_file.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kvm/base/file/file_kind.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {

absl::StatusOr<StackSpec> ReadStackFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  absl::StatusOr<StackSpec> spec = ParseStackSpec(SkipByteOrderMark(text), path);
  if (spec.ok()) return spec;
  return absl::Status(spec.status().code(), absl::StrCat(spec.status().message(),
                                                         LooksLike(absl::string_view(text).substr(0, kFileKindBytes))));
}

}  // namespace kvm
