#include "kvm/io/tokenizer/patterns/oniguruma_pattern.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tokenizer/patterns/oniguruma_escape.h"
#include "kvm/io/tokenizer/patterns/unicode.h"

namespace kvm {
namespace {

constexpr int kDeepestGroup = 50;

std::string CodePoint(int32_t code) { return absl::StrCat("\\x{", absl::Hex(code), "}"); }

class Translator {
 public:
  explicit Translator(absl::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Translate() {
    const size_t invalid = FindInvalidUtf8(pattern_);
    if (invalid != pattern_.size()) return RefusePattern(invalid, "is not UTF-8");
    if (Take("(?i)")) {
      out_ += "(?i)";
      caseless_ = true;
    }
    RETURN_IF_ERROR(Alternatives());
    if (!AtEnd()) return RefusePattern(at_, "\")\" closes no group");
    return out_;
  }

 private:
  bool AtEnd() const { return at_ == pattern_.size(); }
  bool Next(char c) const { return !AtEnd() && pattern_[at_] == c; }
  bool Take(absl::string_view text) {
    if (!absl::StartsWith(pattern_.substr(at_), text)) return false;
    at_ += text.size();
    return true;
  }
  int32_t TakeCharacter() {
    const Character character = FirstCharacter(pattern_.substr(at_));
    at_ += character.length;
    return character.code;
  }

  absl::Status Alternatives() {
    literal_ = -1;
    while (!AtEnd() && !Next(')')) {
      if (Take("|")) {
        out_ += "|";
        literal_ = -1;
        continue;
      }
      const size_t begin = at_;
      const size_t out_begin = out_.size();
      const int32_t before = literal_;
      literal_ = -1;
      bool repeatable = true;
      RETURN_IF_ERROR(Atom(&repeatable));
      RETURN_IF_ERROR(CheckFolding(before, begin));
      RETURN_IF_ERROR(Quantifier(repeatable, out_begin));
    }
    return absl::OkStatus();
  }

  // Regardless of case Oniguruma takes "ss" for "ß", "st" for "ﬆ" and so on, which PCRE2 does not.
  absl::Status CheckFolding(int32_t before, size_t at) const {
    if (!caseless_ || literal_ < 0 || before < 0) return absl::OkStatus();
    const char pair[] = {absl::ascii_tolower(static_cast<char>(before)),
                         absl::ascii_tolower(static_cast<char>(literal_))};
    for (absl::string_view folded : {"ss", "st", "ff", "fi", "fl"}) {
      if (absl::string_view(pair, 2) == folded) {
        return RefusePattern(at, absl::StrCat("\"", folded, "\" regardless of case is not supported"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Atom(bool* repeatable) {
    const size_t begin = at_;
    switch (pattern_[at_]) {
      case '\\':
        return EscapedAtom(repeatable);
      case '[':
        ++at_;
        return Class(begin);
      case '(':
        return Group(repeatable);
      case '.':
        ++at_;
        out_ += ".";
        return absl::OkStatus();
      case '^':
      case '$':
        absl::StrAppend(&out_, "(?m:", pattern_.substr(at_++, 1), ")");
        *repeatable = false;
        return absl::OkStatus();
      case '*':
      case '+':
      case '?':
        return RefusePattern(at_, "a quantifier of nothing");
      case '{':
        if (at_ + 1 < pattern_.size() && (absl::ascii_isdigit(pattern_[at_ + 1]) || pattern_[at_ + 1] == ',')) {
          return RefusePattern(at_, "a quantifier of nothing");
        }
        break;
      default:
        break;
    }
    return Literal(TakeCharacter(), begin);
  }

  absl::Status Literal(int32_t code, size_t at) {
    if (caseless_ && code >= 0x80)
      return RefusePattern(at, "characters beyond ASCII regardless of case are not supported");
    literal_ = code;
    out_ += CodePoint(code);
    return absl::OkStatus();
  }

  absl::Status EscapedAtom(bool* repeatable) {
    const size_t begin = at_;
    ASSIGN_OR_RETURN(const OnigurumaEscape escape, ParseOnigurumaEscape(pattern_, /*in_class=*/false, &at_));
    if (escape.code >= 0) return Literal(escape.code, begin);
    if (escape.is_place) {
      out_ += escape.members;
      *repeatable = false;
      return absl::OkStatus();
    }
    if (caseless_ && escape.has_letters) return RefuseCaselessLetters(begin);
    if (escape.complement && !escape.complement_members.empty()) {
      absl::StrAppend(&out_, "[", escape.complement_members, "]");
    } else {
      absl::StrAppend(&out_, escape.complement ? "[^" : "[", escape.members, "]");
    }
    return absl::OkStatus();
  }

  absl::Status RefuseCaselessLetters(size_t at) const {
    return RefusePattern(at, "classes of letters regardless of case are not supported");
  }

  // After "[".
  absl::Status Class(size_t begin) {
    out_ += Take("^") ? "[^" : "[";
    RETURN_IF_ERROR(Members(begin, 1));
    out_ += "]";
    return absl::OkStatus();
  }

  // Up to and with "]".
  absl::Status Members(size_t begin, int depth) {
    if (depth > kDeepestGroup) return RefusePattern(begin, "classes nested too deep");
    const size_t first = at_;
    if (Next(']')) return RefusePattern(at_, "a class of nothing");
    while (!Take("]")) {
      if (AtEnd()) return RefusePattern(begin, "\"[\" without \"]\"");
      const size_t at = at_;
      if (absl::StartsWith(pattern_.substr(at_), "&&")) return RefusePattern(at, "\"&&\" is not supported");
      if (absl::StartsWith(pattern_.substr(at_), "[:")) return RefusePattern(at, "\"[:\" is not supported");
      if (Take("[")) {
        if (Next('^')) return RefusePattern(at, "a complement inside a class is not supported");
        RETURN_IF_ERROR(Members(at, depth + 1));
        continue;
      }
      if (Next('-') && at != first && !absl::StartsWith(pattern_.substr(at_), "-]")) {
        return RefusePattern(at, "\"-\" in the middle of a class; escape it");
      }
      ASSIGN_OR_RETURN(const OnigurumaEscape member, Member());
      if (member.code < 0) {
        if (caseless_ && member.has_letters) return RefuseCaselessLetters(at);
        RETURN_IF_ERROR(AppendClass(member, at));
        if (Next('-') && !absl::StartsWith(pattern_.substr(at_), "-]"))
          return RefusePattern(at_, "a range from a class");
        continue;
      }
      int32_t last = member.code;
      if (Next('-') && !absl::StartsWith(pattern_.substr(at_), "-]")) {
        ++at_;
        if (AtEnd()) return RefusePattern(begin, "\"[\" without \"]\"");
        if (Next('[')) return RefusePattern(at, "a range without end");
        ASSIGN_OR_RETURN(const OnigurumaEscape end, Member());
        if (end.code < member.code) return RefusePattern(at, "a range whose end comes before its begin");
        last = end.code;
      }
      if (caseless_ && last >= 0x80)
        return RefusePattern(at, "characters beyond ASCII regardless of case are not supported");
      out_ += CodePoint(member.code);
      if (last != member.code) absl::StrAppend(&out_, "-", CodePoint(last));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<OnigurumaEscape> Member() {
    if (Next('\\')) return ParseOnigurumaEscape(pattern_, /*in_class=*/true, &at_);
    OnigurumaEscape escape;
    escape.code = TakeCharacter();
    return escape;
  }

  absl::Status AppendClass(const OnigurumaEscape& member, size_t at) {
    if (!member.complement) {
      out_ += member.members;
    } else if (!member.complement_members.empty()) {
      out_ += member.complement_members;
    } else {
      return RefusePattern(at, "a complement inside a class is not supported");
    }
    return absl::OkStatus();
  }

  absl::Status Group(bool* repeatable) {
    const size_t begin = at_;
    const bool outer = caseless_;
    if (++depth_ > kDeepestGroup) return RefusePattern(begin, "groups nested too deep");
    ++at_;
    absl::string_view opening = "(?:";
    if (Next('?')) {
      absl::string_view known;
      for (absl::string_view kind : {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i:", "?-i:"}) {
        if (known.empty() && Take(kind)) known = kind;
      }
      if (known.empty()) return RefusePattern(begin, "this kind of group is not supported");
      opening = pattern_.substr(begin, known.size() + 1);
      if (known == "?i:") caseless_ = true;
      if (known == "?-i:") caseless_ = false;
      *repeatable = known.find_first_of("=!") == absl::string_view::npos;
    }
    absl::StrAppend(&out_, opening);
    RETURN_IF_ERROR(Alternatives());
    if (!Take(")")) return RefusePattern(begin, "\"(\" without \")\"");
    out_ += ")";
    literal_ = -1;
    caseless_ = outer;
    --depth_;
    return absl::OkStatus();
  }

  // What may follow the atom that begins at `out_begin` of the output.
  absl::Status Quantifier(bool repeatable, size_t out_begin) {
    if (AtEnd()) return absl::OkStatus();
    const size_t begin = at_;
    if (Next('?') || Next('*') || Next('+')) {
      out_ += pattern_[at_++];
      if (Next('?') || Next('+')) out_ += pattern_[at_++];
    } else {
      std::string interval;
      if (!TakeInterval(&interval)) return absl::OkStatus();
      out_ += interval;
      if (Take("+")) {  // not possessive, but a repetition of the repetition
        out_.insert(out_begin, "(?:");
        out_ += ")+";
      } else if (Next('?')) {
        if (!absl::StrContains(interval, ',')) return RefusePattern(begin, "\"{n}?\" is not supported");
        out_ += pattern_[at_++];
      }
    }
    literal_ = -1;
    if (!repeatable) return RefusePattern(begin, "a quantifier of a place");
    std::string interval;
    if (Next('?') || Next('*') || Next('+') || TakeInterval(&interval)) {
      return RefusePattern(at_, "a quantifier of a quantifier is not supported");
    }
    return absl::OkStatus();
  }

  // {n}, {n,}, {,m} or {n,m}; false for a brace that begins none of them, which stands for itself.
  bool TakeInterval(std::string* interval) {
    const size_t end = pattern_.find('}', at_);
    if (!Next('{') || end == absl::string_view::npos) return false;
    absl::string_view inside = pattern_.substr(at_ + 1, end - at_ - 1);
    const size_t comma = inside.find(',');
    const absl::string_view first = inside.substr(0, comma);
    const absl::string_view second = comma == absl::string_view::npos ? absl::string_view() : inside.substr(comma + 1);
    const auto is_number = [](absl::string_view text) {
      return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
    };
    if (!is_number(first) && !(first.empty() && is_number(second))) return false;
    if (!second.empty() && !is_number(second)) return false;
    *interval =
        absl::StrCat("{", first.empty() ? "0" : first, comma == absl::string_view::npos ? "" : ",", second, "}");
    at_ = end + 1;
    return true;
  }

  absl::string_view pattern_;
  size_t at_ = 0;
  int depth_ = 0;
  bool caseless_ = false;
  int32_t literal_ = -1;  // what the last atom was, if it was a character
  std::string out_;
};

}  // namespace

absl::StatusOr<std::string> TranslateOniguruma(absl::string_view pattern) { return Translator(pattern).Translate(); }

std::string LiteralPattern(absl::string_view text) {
  std::string pattern;
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    pattern += CodePoint(character.code);
    text.remove_prefix(character.length);
  }
  return pattern;
}

}  // namespace kvm
