#include "kvm/io/json/json_error.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/file/utf8.h"

namespace kvm {
namespace {

// The parser's number for a number that no double holds.
constexpr int kNumberOverflow = 406;
constexpr size_t kLongestToken = 40;

// The parser's own messages are written for those who program with it.
std::string Reason(absl::string_view text, size_t byte, absl::string_view what) {
  if (byte == 0 || byte > text.size()) return "the text ends too soon";
  if (absl::StrContains(what, "UTF-8")) return "not UTF-8";
  if (absl::StrContains(what, "control character")) return "a control character inside a string";
  const absl::string_view rest = text.substr(byte - 1);
  return absl::StrCat("unexpected '", Printable(rest.substr(0, FirstUtf8(rest).length)), "'");
}

}  // namespace

std::string JsonPlace(absl::string_view text, size_t byte) {
  const absl::string_view before = text.substr(0, byte == 0 ? 0 : byte - 1);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t line_begin = before.rfind('\n') + 1;  // 0 when there is none
  return absl::StrCat("byte ", byte, " (line ", lines + 1, ", column ", before.size() - line_begin + 1, ")");
}

std::string DescribeJsonError(absl::string_view text, size_t byte, absl::string_view last_token,
                              const nlohmann::json::exception& exception) {
  const std::string place = JsonPlace(text, byte);
  if (exception.id == kNumberOverflow) {
    return absl::StrCat("number out of range at ", place, ": ", Printable(last_token, kLongestToken));
  }
  return absl::StrCat("not JSON at ", place, ": ", Reason(text, byte, exception.what()));
}

}  // namespace kvm
