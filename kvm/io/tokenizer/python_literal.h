#ifndef KVM_IO_TOKENIZER_PYTHON_LITERAL_H_
#define KVM_IO_TOKENIZER_PYTHON_LITERAL_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvm {

// The bytes that a Python literal stands for: '…' or "…" for text, which becomes UTF-8, b'…' or b"…" for bytes.
// InvalidArgument, naming the byte, for anything else, and for escapes that Python does not know, \N{…}, surrogates,
// and characters beyond ASCII in a bytes literal. `literal` is UTF-8.
absl::StatusOr<std::string> ParsePythonLiteral(absl::string_view literal);

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_PYTHON_LITERAL_H_
