#include "kvm/base/file/utf8.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kvm/base/check.h"

namespace kvm {
namespace {

struct Lead {
  size_t length;       // of the character, 0 for a byte that begins none
  uint8_t second_low;  // the range of the second byte; all later ones are 80..BF
  uint8_t second_high;
};

// The narrowed second bytes keep out overlong forms, surrogates and what lies beyond U+10FFFF.
Lead ClassifyLead(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// U+0000 to U+001F and U+007F to U+009F.
bool IsControl(absl::string_view character) {
  const uint8_t first = static_cast<uint8_t>(character[0]);
  return first < 0x20 || first == 0x7F ||
         (first == 0xC2 && character.size() == 2 && static_cast<uint8_t>(character[1]) < 0xA0);
}

// Control characters and bytes that are not UTF-8 as \xNN, and a backslash before each of the characters in `marked`.
std::string Escaped(absl::string_view text, size_t longest, absl::string_view marked) {
  std::string shown;
  size_t position = 0;
  while (position < text.size()) {
    const Utf8Step step = FirstUtf8(text.substr(position));
    if (position + step.length > longest) return shown + "...";
    const absl::string_view piece = text.substr(position, step.length);
    if (step.kind == Utf8Kind::kWhole && !IsControl(piece)) {
      if (marked.find(piece[0]) != absl::string_view::npos) shown.push_back('\\');
      shown.append(piece.data(), piece.size());
    } else {
      for (const char byte : piece) {
        absl::StrAppend(&shown, "\\x", absl::Hex(static_cast<uint8_t>(byte), absl::kZeroPad2));
      }
    }
    position += step.length;
  }
  return shown;
}

}  // namespace

Utf8Step FirstUtf8(absl::string_view text) {
  Check(!text.empty(), "text that is not empty");
  const Lead lead = ClassifyLead(static_cast<uint8_t>(text[0]));
  if (lead.length == 0) return {Utf8Kind::kBroken, 1};
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Kind::kUnfinished, i};
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    const uint8_t low = i == 1 ? lead.second_low : 0x80;
    const uint8_t high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {Utf8Kind::kBroken, i};
  }
  return {Utf8Kind::kWhole, lead.length};
}

size_t FindInvalidUtf8(absl::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    if (static_cast<uint8_t>(text[position]) < 0x80) {
      ++position;
      continue;
    }
    const Utf8Step step = FirstUtf8(text.substr(position));
    if (step.kind != Utf8Kind::kWhole) break;
    position += step.length;
  }
  return position;
}

absl::string_view SkipByteOrderMark(absl::string_view text) {
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");
  return text;
}

std::string Quoted(absl::string_view text) {
  constexpr size_t kLongest = 200;
  return absl::StrCat("\"", Escaped(text, kLongest, "\"\\"), "\"");
}

std::string Printable(absl::string_view text, size_t longest) { return Escaped(text, longest, ""); }

}  // namespace kvm
