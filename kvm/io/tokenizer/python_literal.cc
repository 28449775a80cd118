#include "kvm/io/tokenizer/python_literal.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tokenizer/patterns/unicode.h"

namespace kvm {
namespace {

class Parser {
 public:
  explicit Parser(absl::string_view literal) : literal_(literal) {}

  absl::StatusOr<std::string> Parse() {
    is_bytes_ = !literal_.empty() && literal_[0] == 'b';
    at_ = is_bytes_ ? 1 : 0;
    if (at_ == literal_.size() || (literal_[at_] != '\'' && literal_[at_] != '"'))
      return Refuse(at_, "expected a quote");
    const char quote = literal_[at_++];
    while (at_ < literal_.size() && literal_[at_] != quote) {
      const size_t begin = at_;
      if (literal_[at_] == '\\') {
        ++at_;
        RETURN_IF_ERROR(Escape(begin));
        continue;
      }
      const Character character = FirstCharacter(literal_.substr(at_));
      if (is_bytes_ && character.code >= 0x80) return Refuse(begin, "a character that is no byte");
      bytes_.append(literal_.data() + at_, character.length);
      at_ += character.length;
    }
    if (at_ == literal_.size()) return Refuse(at_, "expected a quote at the end");
    if (at_ + 1 != literal_.size()) return Refuse(at_ + 1, "something after the closing quote");
    return bytes_;
  }

 private:
  static absl::Status Refuse(size_t at, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("byte ", at, " of the literal: ", what));
  }

  // After the backslash.
  absl::Status Escape(size_t begin) {
    const absl::string_view known = "\\'\"abfnrtv";
    const absl::string_view meant = "\\'\"\a\b\f\n\r\t\v";
    if (at_ == literal_.size()) return Refuse(begin, "\"\\\" at the end");
    const char kind = literal_[at_];
    const size_t place = known.find(kind);
    if (place != absl::string_view::npos) {
      ++at_;
      bytes_.push_back(meant[place]);
      return absl::OkStatus();
    }
    if (kind >= '0' && kind <= '7') return Number(begin, 8, 1, 3);
    ++at_;
    if (kind == 'x') return Number(begin, 16, 2, 2);
    if (kind == 'u' && !is_bytes_) return Number(begin, 16, 4, 4);
    if (kind == 'U' && !is_bytes_) return Number(begin, 16, 8, 8);
    return Refuse(begin, "an unknown escape");
  }

  absl::Status Number(size_t begin, uint32_t base, size_t fewest, size_t most) {
    uint64_t value = 0;
    size_t digits = 0;
    for (; digits < most && at_ < literal_.size(); ++digits, ++at_) {
      const unsigned char c = static_cast<unsigned char>(literal_[at_]);
      if (base == 8 ? (c < '0' || c > '7') : !absl::ascii_isxdigit(c)) break;
      value = value * base + (absl::ascii_isdigit(c) ? c - '0' : absl::ascii_tolower(c) - 'a' + 10);
    }
    if (digits < fewest) return Refuse(begin, absl::StrCat("an escape with fewer than ", fewest, " digits"));
    if (is_bytes_) {
      if (value > 0xFF) return Refuse(begin, "a number that is no byte");
      bytes_.push_back(static_cast<char>(value));
      return absl::OkStatus();
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return Refuse(begin, "a number that is no character");
    AppendCharacter(static_cast<int32_t>(value), &bytes_);
    return absl::OkStatus();
  }

  absl::string_view literal_;
  size_t at_ = 0;
  bool is_bytes_ = false;
  std::string bytes_;
};

}  // namespace

absl::StatusOr<std::string> ParsePythonLiteral(absl::string_view literal) { return Parser(literal).Parse(); }

}  // namespace kvm
