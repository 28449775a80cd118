#ifndef KVM_IO_GGUF_GGUF_METADATA_H_
#define KVM_IO_GGUF_GGUF_METADATA_H_

// The key-value pairs at the front of a GGUF file.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvm {

// Types of values, with the numbers that the format gives them. Arrays (9) are GgufValue::is_array.
enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// The strings of an array, shown where they lie in the file: nothing is copied, and a step reads one length. The bytes
// were checked when the file was opened; they live as long as it.
class GgufStrings {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = absl::string_view;
    using difference_type = std::ptrdiff_t;
    using pointer = const absl::string_view*;
    using reference = absl::string_view;

    Iterator() = default;
    explicit Iterator(const char* at) : at_(at) {}
    absl::string_view operator*() const { return {at_ + sizeof(uint64_t), Length()}; }
    Iterator& operator++() {
      at_ += sizeof(uint64_t) + Length();
      return *this;
    }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    size_t Length() const {
      uint64_t length;
      std::memcpy(&length, at_, sizeof(length));
      return static_cast<size_t>(length);
    }
    const char* at_ = nullptr;
  };

  GgufStrings() = default;
  // `bytes`: `count` strings, each behind its length in 8 bytes, and nothing else.
  GgufStrings(absl::string_view bytes, size_t count) : bytes_(bytes), count_(count) {}

  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  Iterator begin() const { return Iterator(bytes_.data()); }
  Iterator end() const { return Iterator(bytes_.data() + bytes_.size()); }

 private:
  absl::string_view bytes_;
  size_t count_ = 0;
};

// A value as it lies in the file: a scalar, a string or an array of either.
struct GgufValue {
  GgufValueType type = GgufValueType::kU8;  // of the elements where it is an array
  bool is_array = false;
  size_t count = 1;         // of elements
  absl::string_view bytes;  // of all elements; of strings with the 8 bytes of each length
};

// "u32", "array of 32 strings".
std::string DescribeType(const GgufValue& value);

// The value for people: 64, true, text as it is, or the first few elements of an array and how many there are.
std::string FormatGgufValue(const GgufValue& value);

// Keys and values of one file, whose bytes must live as long. Values are read by what they mean: whole numbers from any
// integer type, fractions from F32 and F64. Errors are InvalidArgument and name the file, the key, what is there and
// what was expected; a key that is missing is one of them, unless a default is given. Thread-safe.
class GgufMetadata {
 public:
  explicit GgufMetadata(std::string source = "") : source_(std::move(source)) {}

  // What errors call the file.
  const std::string& source() const { return source_; }

  // False when the key is there already. The bytes of `value` are whole: count elements of its type, bools 0 or 1.
  bool Add(absl::string_view key, const GgufValue& value) { return values_.emplace(key, value).second; }

  // Sorted.
  const std::map<absl::string_view, GgufValue>& values() const { return values_; }
  // Null when there is no such key.
  const GgufValue* Find(absl::string_view key) const;
  bool Has(absl::string_view key) const { return Find(key) != nullptr; }

  // A whole number from low to high.
  absl::StatusOr<int64_t> Int(absl::string_view key, int64_t low, int64_t high) const;
  absl::StatusOr<int64_t> IntOr(absl::string_view key, int64_t low, int64_t high, int64_t otherwise) const;
  // A number, fractions included.
  absl::StatusOr<double> Number(absl::string_view key) const;
  absl::StatusOr<double> NumberOr(absl::string_view key, double otherwise) const;
  absl::StatusOr<bool> Bool(absl::string_view key) const;
  absl::StatusOr<bool> BoolOr(absl::string_view key, bool otherwise) const;
  absl::StatusOr<absl::string_view> String(absl::string_view key) const;
  absl::StatusOr<absl::string_view> StringOr(absl::string_view key, absl::string_view otherwise) const;
  absl::StatusOr<GgufStrings> Strings(absl::string_view key) const;
  // Whole numbers from low to high.
  absl::StatusOr<std::vector<int64_t>> Ints(absl::string_view key, int64_t low, int64_t high) const;
  // Of F32 and F64.
  absl::StatusOr<std::vector<float>> Numbers(absl::string_view key) const;
  absl::StatusOr<std::vector<bool>> Bools(absl::string_view key) const;

  // InvalidArgument that begins with the file and the key.
  absl::Status Wrong(absl::string_view key, absl::string_view why) const;

 private:
  // The value, which must be of the form that `fits` says; `expected` completes "expected ".
  absl::StatusOr<GgufValue> Get(absl::string_view key, bool fits(const GgufValue&), absl::string_view expected) const;

  std::string source_;
  std::map<absl::string_view, GgufValue> values_;
};

}  // namespace kvm

#endif  // KVM_IO_GGUF_GGUF_METADATA_H_
