#include "kvm/io/tokenizer/patterns/oniguruma_escape.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tokenizer/patterns/unicode.h"

namespace kvm {
namespace {

// White_Space; PCRE2's \s has U+180E as well.
constexpr absl::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr absl::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Outside of brackets Oniguruma counts Latin-1's small digits and fractions among them, too.
constexpr absl::string_view kMoreOfWord = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr absl::string_view kHexDigit = "0-9A-Fa-f";

constexpr absl::string_view kCategories[] = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",  "Mc", "Me", "Mn", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};
constexpr absl::string_view kScripts[] = {
    "Arabic",   "Armenian",  "Bengali",   "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Greek", "Gujarati",
    "Gurmukhi", "Han",       "Hangul",    "Hebrew",   "Hiragana",   "Kannada",  "Katakana", "Khmer", "Lao",
    "Latin",    "Malayalam", "Mongolian", "Myanmar",  "Sinhala",    "Tamil",    "Telugu",   "Thai",  "Tibetan"};

template <size_t size>
bool Contains(const absl::string_view (&names)[size], absl::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

class EscapeParser {
 public:
  EscapeParser(absl::string_view pattern, size_t at) : pattern_(pattern), at_(at) {}

  size_t at() const { return at_; }

  absl::StatusOr<OnigurumaEscape> Parse(bool in_class) {
    const size_t begin = at_;
    ++at_;
    if (AtEnd()) return RefusePattern(begin, "\"\\\" at the end");
    const int32_t code = TakeCharacter();
    OnigurumaEscape escape;
    const auto is_class = [&](absl::string_view members, absl::string_view complement_members, bool complement,
                              bool has_letters) {
      escape.members = std::string(members);
      escape.complement_members = std::string(complement_members);
      escape.complement = complement;
      escape.has_letters = has_letters;
      return escape;
    };
    const auto is_place = [&](absl::string_view place) {
      escape.members = std::string(place);
      escape.is_place = true;
      return escape;
    };
    const auto is_code = [&](int32_t value) {
      escape.code = value;
      return escape;
    };
    switch (code) {
      case 's':
      case 'S':
        return is_class(kSpace, "\\P{White_Space}", code == 'S', code == 'S');
      case 'd':
      case 'D':
        return is_class("\\p{Nd}", "\\P{Nd}", code == 'D', code == 'D');
      case 'w':
      case 'W':
        return is_class(absl::StrCat(kWord, in_class ? "" : kMoreOfWord), "", code == 'W', true);
      case 'h':
      case 'H':
        return is_class(kHexDigit, "", code == 'H', code == 'H');
      case 'p':
      case 'P':
        return Property(begin, code == 'P');
      case 'n':
        return is_code('\n');
      case 't':
        return is_code('\t');
      case 'r':
        return is_code('\r');
      case 'f':
        return is_code('\f');
      case 'v':
        return is_code('\v');
      case 'a':
        return is_code('\a');
      case 'e':
        return is_code(0x1B);
      case 'x':
      case 'u': {
        ASSIGN_OR_RETURN(escape.code, HexCode(begin, static_cast<char>(code)));
        return escape;
      }
      case 'b':
        if (in_class) return is_code('\b');
        break;
      case 'A':
      case 'z':
      case 'Z':
        if (!in_class) return is_place(absl::StrCat("\\", std::string(1, static_cast<char>(code))));
        break;
      default:
        if (code >= 0x80 || !absl::ascii_isalnum(static_cast<unsigned char>(code))) return is_code(code);
        break;
    }
    return RefusePattern(begin, absl::StrCat("\"", pattern_.substr(begin, 2), "\" is not supported"));
  }

 private:
  // After \x: two hex digits of ASCII, or braces; after \u: four hex digits.
  absl::StatusOr<int32_t> HexCode(size_t begin, char kind) {
    absl::string_view digits;
    if (kind == 'x' && Take("{")) {
      const size_t end = pattern_.find('}', at_);
      if (end == absl::string_view::npos) return RefusePattern(begin, "\"\\x{\" without \"}\"");
      digits = pattern_.substr(at_, end - at_);
      at_ = end + 1;
    } else {
      digits = pattern_.substr(at_, kind == 'x' ? 2 : 4);
      if (digits.size() != (kind == 'x' ? 2u : 4u)) return RefusePattern(begin, "too few hexadecimal digits");
      at_ += digits.size();
    }
    uint32_t code = 0;
    const bool all_digits = std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit);
    if (!all_digits || digits.size() > 6 || !absl::SimpleHexAtoi(digits, &code)) {
      return RefusePattern(begin, "no hexadecimal digits of a character");
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return RefusePattern(begin, "not a character");
    if (kind == 'x' && digits.data()[-1] == 'x' && code >= 0x80)
      return RefusePattern(begin, "a byte that is no character");
    return static_cast<int32_t>(code);
  }

  absl::StatusOr<OnigurumaEscape> Property(size_t begin, bool complement) {
    const size_t end = pattern_.find('}', at_);
    if (!Take("{") || end == absl::string_view::npos)
      return RefusePattern(begin, "expected the name of a property in braces");
    if (Take("^")) complement = !complement;
    const absl::string_view name = pattern_.substr(at_, end - at_);
    at_ = end + 1;
    OnigurumaEscape escape;
    escape.complement = complement;
    const bool is_script = Contains(kScripts, name);
    if (!is_script && !Contains(kCategories, name)) {
      return RefusePattern(begin, absl::StrCat("the property ", Quoted(name), " is not supported"));
    }
    const std::string braces = absl::StrCat("{", is_script ? "sc:" : "", name, "}");
    escape.members = "\\p" + braces;
    escape.complement_members = "\\P" + braces;
    const bool is_caseless = absl::StrContains("NPZ", name.substr(0, 1)) && name != "Nl";
    escape.has_letters = complement || is_script || !is_caseless;
    return escape;
  }

  bool AtEnd() const { return at_ == pattern_.size(); }
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

  absl::string_view pattern_;
  size_t at_;
};

}  // namespace

absl::Status RefusePattern(size_t at, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("byte ", at, " of the pattern: ", what));
}

absl::StatusOr<OnigurumaEscape> ParseOnigurumaEscape(absl::string_view pattern, bool in_class, size_t* at) {
  EscapeParser parser(pattern, *at);
  ASSIGN_OR_RETURN(OnigurumaEscape escape, parser.Parse(in_class));
  *at = parser.at();
  return escape;
}

}  // namespace kvm
