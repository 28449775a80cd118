#include "kvm/io/json/strict_json.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvm/base/file/file_kind.h"
#include "kvm/base/file/utf8.h"
#include "kvm/io/json/json_error.h"

namespace kvm {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxDepth = 100;

// Builds the value from the parser's events and stops at the first it does not like.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(absl::string_view text) : text_(text) {}

  Json TakeValue() { return std::move(root_); }
  const std::string& error() const { return error_; }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(Json::binary_t&) override { return Refuse("binary data"); }
  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(std::string& text) override {
    const auto [place, inserted] = open_.back()->get_ref<Json::object_t&>().emplace(text, nullptr);
    slot_ = &place->second;
    return inserted || Refuse(absl::StrCat("the key ", Quoted(text), " appears twice in one object"));
  }

  bool parse_error(std::size_t byte, const std::string& last_token, const Json::exception& exception) override {
    return Refuse(DescribeJsonError(text_, byte, last_token, exception));
  }

 private:
  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }

  bool Open(Json value) {
    if (open_.size() == kMaxDepth) return Refuse(absl::StrCat("nested more than ", kMaxDepth, " deep"));
    open_.push_back(Place(std::move(value)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  bool Refuse(std::string error) {
    error_ = std::move(error);
    return false;
  }

  // Pointers into the value stay good: an array grows only while none of its elements is open.
  Json* Place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json* parent = open_.back();
    if (parent->is_array()) {
      parent->push_back(std::move(value));
      return &parent->back();
    }
    *slot_ = std::move(value);
    return slot_;
  }

  absl::string_view text_;
  Json root_;
  std::vector<Json*> open_;  // objects and arrays that have not ended, outermost first
  Json* slot_ = nullptr;     // where the innermost object's next value goes
  std::string error_;
};

// What people pass by mistake; nothing for JSON with an error in it.
std::string LooksLikeSomethingElse(absl::string_view text) {
  const absl::string_view start = text.substr(0, kFileKindBytes);
  return DetectFileKind(start) == FileKind::kJson ? "" : LooksLike(start);
}

}  // namespace

absl::StatusOr<Json> ParseStrictJson(absl::string_view text, const std::string& source) {
  // The parser takes a zero byte for the end of its input and would not see what follows.
  const size_t zero = text.find('\0');
  if (zero != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": not JSON at ", JsonPlace(text, zero + 1), ": a zero byte",
                                                   LooksLikeSomethingElse(text)));
  }
  Builder builder(text);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": ", builder.error(), LooksLikeSomethingElse(text)));
  }
  return builder.TakeValue();
}

}  // namespace kvm
