#include "kvm/io/tokenizer/patterns/unicode.h"

#include <algorithm>
#include <vector>

#include "kvm/base/check.h"
#include "utf8proc.h"

namespace kvm {
namespace {

// Characters below compose with nothing before them, and alone they are in NFC. Their UTF-8 begins with less than
// kFirstByteOfMarks.
constexpr int32_t kFirstMark = 0x300;
constexpr uint8_t kFirstByteOfMarks = 0xCC;

// It begins no composition and ends none, but utf8proc lets it vanish after a Hangul syllable.
constexpr int32_t kHangulBeforeFinals = 0x11A7;

bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

int32_t CombiningClass(int32_t code) { return utf8proc_get_property(code)->combining_class; }

// Sorts each run of marks by their combining class; utf8proc's own way takes the square of a run's length.
void OrderMarks(std::vector<int32_t>* codes) {
  size_t begin = 0;
  while (begin < codes->size()) {
    size_t end = begin;
    while (end < codes->size() && CombiningClass((*codes)[end]) != 0) ++end;
    if (end - begin > 1) {
      std::stable_sort(codes->begin() + begin, codes->begin() + end,
                       [](int32_t a, int32_t b) { return CombiningClass(a) < CombiningClass(b); });
    }
    begin = end + 1;
  }
}

// Appends the NFC of `text`, whose first character composes with nothing before it. `codes` is memory to use.
void AppendNfc(absl::string_view text, std::vector<int32_t>* codes, std::string* nfc) {
  constexpr utf8proc_option_t kForm = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  codes->clear();
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    text.remove_prefix(character.length);
    int32_t parts[32];  // no character has more than 4
    int boundary_class = 0;
    const auto count = utf8proc_decompose_char(character.code, parts, 32, kForm, &boundary_class);
    CheckBetween(count, 1, 32, "the parts of a character");
    codes->insert(codes->end(), parts, parts + count);
  }
  OrderMarks(codes);
  const auto count = utf8proc_normalize_utf32(codes->data(), static_cast<utf8proc_ssize_t>(codes->size()), kForm);
  CheckAtLeast(count, 0, "the characters in NFC");
  for (utf8proc_ssize_t i = 0; i < count; ++i) AppendCharacter((*codes)[i], nfc);
}

}  // namespace

Character FirstCharacter(absl::string_view text) {
  Check(!text.empty(), "text that is not empty");
  const uint8_t lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  Check(text.size() >= length, "text of whole characters");
  const auto low_bits = [&](size_t i) { return static_cast<int32_t>(static_cast<uint8_t>(text[i]) & 0x3F); };
  if (length == 2) return {(lead & 0x1F) << 6 | low_bits(1), 2};
  if (length == 3) return {(lead & 0xF) << 12 | low_bits(1) << 6 | low_bits(2), 3};
  return {(lead & 7) << 18 | low_bits(1) << 12 | low_bits(2) << 6 | low_bits(3), 4};
}

Character LastCharacter(absl::string_view text) {
  Check(!text.empty(), "text that is not empty");
  size_t begin = text.size() - 1;
  while (begin > 0 && IsContinuation(text[begin])) --begin;
  return FirstCharacter(text.substr(begin));
}

void AppendCharacter(int32_t code, std::string* text) {
  const auto append = [&](int32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    append(code);
    return;
  }
  if (code < 0x800) {
    append(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      append(0xE0 | code >> 12);
    } else {
      append(0xF0 | code >> 18);
      append(0x80 | (code >> 12 & 0x3F));
    }
    append(0x80 | (code >> 6 & 0x3F));
  }
  append(0x80 | (code & 0x3F));
}

bool IsWhiteSpace(int32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool IsWordCharacter(int32_t code) {
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  // The joiners, and letters in circles and squares, which are symbols but alphabetic.
  return code == 0x200C || code == 0x200D || (code >= 0x24B6 && code <= 0x24E9) ||
         (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
         (code >= 0x1F170 && code <= 0x1F189);
}

bool MayChangeInNfc(absl::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char byte) { return static_cast<uint8_t>(byte) >= kFirstByteOfMarks; });
}

// Cut before every character that composes with nothing before it, as far as that is cheap to see.
std::string ToNfc(absl::string_view text) {
  std::string nfc;
  nfc.reserve(text.size());
  std::vector<int32_t> codes;
  size_t begin = 0;  // of what was not appended yet
  size_t last = 0;   // the character before `position`
  size_t position = 0;
  while (position < text.size()) {
    if (static_cast<uint8_t>(text[position]) < kFirstByteOfMarks) {
      last = position++;
      while (position < text.size() && IsContinuation(text[position])) ++position;
      continue;
    }
    nfc.append(text.data() + begin, last - begin);
    const size_t segment = last;
    while (position < text.size()) {
      const Character character = FirstCharacter(text.substr(position));
      if (character.code < kFirstMark) break;
      if (character.code == kHangulBeforeFinals && position > segment) break;
      position += character.length;
    }
    AppendNfc(text.substr(segment, position - segment), &codes, &nfc);
    begin = last = position;
  }
  nfc.append(text.data() + begin, text.size() - begin);
  return nfc;
}

}  // namespace kvm
