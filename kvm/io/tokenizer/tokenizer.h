#ifndef KVM_IO_TOKENIZER_TOKENIZER_H_
#define KVM_IO_TOKENIZER_TOKENIZER_H_

// Text to token ids and back.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kvm {

// Thread-safe: all methods are const.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of UTF-8 text; special tokens in it become their ids. InvalidArgument with the byte offset for invalid UTF-8.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text) const = 0;

  // The bytes of one token; empty for ids that have none. `id` in 0..vocab_size−1.
  virtual absl::string_view TokenBytes(int32_t id) const = 0;

  // One more than the largest id.
  virtual int32_t vocab_size() const = 0;

  // The ids that models are used to have before and behind every text ("<|begin_of_text|>"), for callers to put there:
  // Encode does not. Mostly none.
  virtual absl::Span<const int32_t> ids_before_text() const { return {}; }
  virtual absl::Span<const int32_t> ids_after_text() const { return {}; }

  // What its file asks for that Encode does not do, worth showing to the user: "tokenizer.json: truncation is ignored".
  virtual absl::Span<const std::string> notes() const { return {}; }

  // The id that ends a text ("<|endoftext|>"), or −1.
  virtual int32_t end_of_text() const = 0;
};

// The concatenated bytes of all ids. InvalidArgument for an id that is not in the vocabulary.
absl::StatusOr<std::string> Decode(const Tokenizer& tokenizer, absl::Span<const int32_t> ids);

// What implementations of Encode refuse first: InvalidArgument with the offset of a byte that is not UTF-8.
absl::Status CheckUtf8(absl::string_view text);

// Turns a stream of tokens into a stream of whole UTF-8 characters.
class StreamDecoder {
 public:
  // `tokenizer` must outlive this object.
  explicit StreamDecoder(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // The characters completed by this token: possibly none. Bytes that can begin no character, and ids that are not in
  // the vocabulary, come out as U+FFFD.
  std::string Add(int32_t id);

  // What is left at the end, an unfinished character as U+FFFD.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
};

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_TOKENIZER_H_
