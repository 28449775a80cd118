#include "kvm/io/tokenizer/byte_level_bpe.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/mapped_file.h"
#include "nlohmann/json.hpp"

namespace kvm {
namespace {

using Json = nlohmann::json;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Tokenizer& Gpt2() {
  static const std::unique_ptr<Tokenizer>* const tokenizer = [] {
    auto loaded = LoadByteLevelBpe("testing/data/gpt2/tokenizer.json");
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return new std::unique_ptr<Tokenizer>(std::move(loaded).value());
  }();
  return **tokenizer;
}

struct EncodeCase {
  std::string text;
  std::vector<int32_t> ids;
};

// What the Hugging Face tokenizers library made of these texts.
std::vector<EncodeCase> EncodeCases() {
  const absl::StatusOr<std::string> lines = ReadFile("testing/data/gpt2/encode_cases.jsonl");
  EXPECT_TRUE(lines.ok()) << lines.status();
  std::vector<EncodeCase> cases;
  for (absl::string_view line : absl::StrSplit(*lines, '\n', absl::SkipEmpty())) {
    const Json json = Json::parse(line);
    cases.push_back({json["text"].get<std::string>(), json["ids"].get<std::vector<int32_t>>()});
  }
  return cases;
}

std::vector<int32_t> MustEncode(const Tokenizer& tokenizer, absl::string_view text) {
  const absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(text);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? *ids : std::vector<int32_t>{};
}

TEST(Gpt2, EncodesAsTheLibraryThatTrainedIt) {
  const std::vector<EncodeCase> cases = EncodeCases();
  ASSERT_EQ(cases.size(), 40u);
  for (const EncodeCase& c : cases) {
    SCOPED_TRACE(c.text);
    EXPECT_EQ(MustEncode(Gpt2(), c.text), c.ids);
    EXPECT_EQ(*Decode(Gpt2(), c.ids), c.text);
  }
}

TEST(Gpt2, StreamsWhatDecodeGives) {
  for (const EncodeCase& c : EncodeCases()) {
    SCOPED_TRACE(c.text);
    StreamDecoder decoder(&Gpt2());
    std::string streamed;
    for (int32_t id : c.ids) streamed += decoder.Add(id);
    EXPECT_EQ(decoder.Finish(), "");
    EXPECT_EQ(streamed, c.text);
  }
}

TEST(Gpt2, KnowsItsVocabulary) {
  const Tokenizer& tokenizer = Gpt2();
  EXPECT_EQ(tokenizer.vocab_size(), 50257);
  EXPECT_EQ(tokenizer.end_of_text(), 50256);
  EXPECT_EQ(tokenizer.TokenBytes(50256), "<|endoftext|>");
  EXPECT_EQ(tokenizer.TokenBytes(0), "!");
  EXPECT_EQ(tokenizer.TokenBytes(220), " ");
  EXPECT_EQ(tokenizer.TokenBytes(198), "\n");
  EXPECT_EQ(tokenizer.TokenBytes(995), " world");
  EXPECT_EQ(tokenizer.TokenBytes(188), absl::string_view("\0", 1));
  EXPECT_EQ(tokenizer.TokenBytes(447), "\xe2\x80");
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) ASSERT_FALSE(tokenizer.TokenBytes(id).empty()) << id;
  EXPECT_FALSE(Decode(tokenizer, {50257}).ok());
}

TEST(Gpt2, GivesBackEveryCharacter) {
  std::string text;
  for (uint32_t c = 0; c < 0x11000; c = c < 0x3000 ? c + 1 : c + 37) {
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else if (c < 0x800) {
      text += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
    } else if (c < 0x10000) {
      if (c >= 0xD800 && c < 0xE000) continue;
      text += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
               static_cast<char>(0x80 | (c & 0x3F))};
    } else {
      text += {static_cast<char>(0xF0), static_cast<char>(0x80 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
               static_cast<char>(0x80 | (c & 0x3F))};
    }
  }
  const std::vector<int32_t> ids = MustEncode(Gpt2(), text);
  EXPECT_TRUE(*Decode(Gpt2(), ids) == text);
  StreamDecoder decoder(&Gpt2());
  std::string streamed;
  for (int32_t id : ids) streamed += decoder.Add(id);
  EXPECT_TRUE(streamed + decoder.Finish() == text);
}

TEST(Gpt2, NamesTheFirstByteThatIsNotUtf8) {
  const struct {
    std::string text;
    int offset;
  } cases[] = {{"\xff", 0}, {"abc\xe2\x82", 3}, {"é\xc3", 2}, {"<|endoftext|>\xed\xa0\x80", 13}};
  for (const auto& c : cases) {
    const absl::Status status = Gpt2().Encode(c.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), absl::StrCat("text is not valid UTF-8 at byte ", c.offset));
  }
}

// One word a million bytes long: neither a limit of the matcher nor a time that grows with the square.
TEST(Gpt2, EncodesAMillionOfOneCharacter) {
  EXPECT_THAT(MustEncode(Gpt2(), std::string(1 << 20, 'A')), Each(43488));  // "AAAAAAAA"
  EXPECT_THAT(MustEncode(Gpt2(), std::string(1 << 20, '0')), Each(25645));  // sixteen zeros
  for (const std::string unit : {"a", "7", " ", "\n", "é", "👩", "!", "ab", "a "}) {
    std::string text;
    while (text.size() < (1 << 20)) text += unit;
    const std::vector<int32_t> ids = MustEncode(Gpt2(), text);
    EXPECT_TRUE(*Decode(Gpt2(), ids) == text) << unit;
  }
}

TEST(Gpt2, EncodesFromManyThreadsAtOnce) {
  const std::vector<EncodeCase> cases = EncodeCases();
  const Tokenizer& tokenizer = Gpt2();
  std::vector<int> differing(4, 0);
  std::vector<std::thread> threads;
  for (int& count : differing) {
    threads.emplace_back([&] {
      for (const EncodeCase& c : cases) count += *tokenizer.Encode(c.text) != c.ids;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(differing, Each(0));
}

TEST(LoadByteLevelBpe, NamesAFileThatIsNotThere) {
  const std::string path = testing::TempDir() + "/absent/tokenizer.json";
  const absl::Status status = LoadByteLevelBpe(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
}

// A small vocabulary: a 0, b 1, c 2, space 3, é 4 and 5 (by bytes), "ab" 6, "abc" 7, " a" 8, "<|endoftext|>" 10.
Json SmallJson() {
  return Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
    "added_tokens": [{"id": 10, "content": "<|endoftext|>", "special": true, "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": {"type": "ByteLevel", "trim_offsets": false},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
              "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
              "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "Ã": 4, "©": 5, "ab": 6, "abc": 7, "Ġa": 8,
                        "<|endoftext|>": 10},
              "merges": ["a b", "ab c", "Ġ a"]}})");
}

std::unique_ptr<Tokenizer> MustParse(const Json& json) {
  auto tokenizer = ParseByteLevelBpe(json.dump(), "small.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return std::move(tokenizer).value();
}

TEST(ParseByteLevelBpe, ReadsASmallFile) {
  const auto tokenizer = MustParse(SmallJson());
  EXPECT_THAT(MustEncode(*tokenizer, "abc ab aé<|endoftext|>a"), ElementsAre(7, 3, 6, 8, 4, 5, 10, 0));
  EXPECT_EQ(tokenizer->vocab_size(), 11);
  EXPECT_EQ(tokenizer->end_of_text(), 10);
  EXPECT_EQ(tokenizer->TokenBytes(9), "");
  EXPECT_EQ(tokenizer->TokenBytes(4), "\xc3");
  EXPECT_EQ(*Decode(*tokenizer, {8, 9, 7}), " aabc");
}

TEST(ParseByteLevelBpe, ReadsMergesAsPairsAndFieldsLeftOut) {
  Json json = SmallJson();
  json["model"]["merges"] = Json::parse(R"([["a","b"],["ab","c"]])");
  json["model"].erase("type");
  for (const char* name : {"added_tokens", "post_processor", "decoder", "normalizer", "version"}) json.erase(name);
  const auto tokenizer = MustParse(json);
  EXPECT_THAT(MustEncode(*tokenizer, "abcab a"), ElementsAre(7, 6, 3, 0));
  EXPECT_EQ(tokenizer->end_of_text(), 10);
  json["model"]["vocab"].erase("<|endoftext|>");
  EXPECT_EQ(MustParse(json)->end_of_text(), -1);
}

TEST(ParseByteLevelBpe, HonoursAddPrefixSpaceForEveryPieceOfText) {
  Json json = SmallJson();
  json["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_THAT(MustEncode(*MustParse(json), "a<|endoftext|>a b"), ElementsAre(8, 10, 8, 3, 1));
  EXPECT_THAT(MustEncode(*MustParse(json), " a<|endoftext|> b"), ElementsAre(8, 10, 3, 1));
  EXPECT_THAT(MustEncode(*MustParse(json), ""), IsEmpty());
  EXPECT_THAT(MustEncode(*MustParse(json), "<|endoftext|>"), ElementsAre(10));
  json["pre_tokenizer"].erase("add_prefix_space");  // true is what its absence means
  EXPECT_THAT(MustEncode(*MustParse(json), "a"), ElementsAre(8));
}

TEST(ParseByteLevelBpe, HonoursUseRegex) {
  Json json = SmallJson();
  json["model"]["vocab"]["bĠ"] = 9;
  json["model"]["merges"].push_back("b Ġ");
  EXPECT_THAT(MustEncode(*MustParse(json), "cb c"), ElementsAre(2, 1, 3, 2));
  json["pre_tokenizer"]["use_regex"] = false;
  EXPECT_THAT(MustEncode(*MustParse(json), "cb c"), ElementsAre(2, 9, 2));
}

// The expected ids are those of the Hugging Face tokenizers library.
TEST(ParseByteLevelBpe, FindsAddedTokensThatAreNotNormalizedFirst) {
  Json json = SmallJson();
  const auto add = [&](int id, const std::string& content, bool normalized) {
    json["added_tokens"].push_back({{"id", id}, {"content", content}, {"special", true}, {"normalized", normalized}});
  };
  add(6, "ab", true);
  add(11, "bcc", false);
  add(12, "abb", true);
  add(13, "é é", false);
  const auto tokenizer = MustParse(json);
  EXPECT_EQ(tokenizer->vocab_size(), 14);
  EXPECT_THAT(MustEncode(*tokenizer, "abcc"), ElementsAre(0, 11));
  EXPECT_THAT(MustEncode(*tokenizer, "abbab"), ElementsAre(12, 6));
  EXPECT_THAT(MustEncode(*tokenizer, "cé éc"), ElementsAre(2, 13, 2));
  EXPECT_EQ(tokenizer->TokenBytes(13), "é é");
}

TEST(ParseByteLevelBpe, EncodeNamesAByteThatTheVocabularyLacks) {
  const auto tokenizer = MustParse(SmallJson());
  const absl::Status status = tokenizer->Encode("ab<|endoftext|>a è").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "the byte 0xa8 of the text's \" \303\250\" has no token in the vocabulary");
}

// As files have them that were saved after training.
TEST(ParseByteLevelBpe, IgnoresTruncationAndPaddingWithANote) {
  Json json = SmallJson();
  const auto plain = MustParse(json);
  EXPECT_THAT(plain->notes(), ::testing::IsEmpty());
  json["truncation"] = {{"direction", "Right"}, {"max_length", 2}, {"strategy", "LongestFirst"}, {"stride", 0}};
  json["padding"] = {{"strategy", {{"Fixed", 16}}}, {"pad_id", 0}, {"pad_token", "a"}};
  const auto tokenizer = MustParse(json);
  EXPECT_THAT(tokenizer->notes(),
              ::testing::ElementsAre("small.json: truncation is ignored", "small.json: padding is ignored"));
  EXPECT_EQ(*tokenizer->Encode("abcabcabc"), *plain->Encode("abcabcabc"));
  EXPECT_GE(tokenizer->Encode("abcabcabc")->size(), 3u);
}

TEST(ParseByteLevelBpe, NamesTheFieldThatIsWrong) {
  const struct {
    const char* pointer;  // the field, as a JSON pointer
    const char* value;
    const char* message;
  } cases[] = {
      {"/pre_tokenizer", "null", R"(pre_tokenizer is null; expected an object of type ByteLevel or Sequence)"},
      {"/pre_tokenizer", R"({"type":"Whitespace"})", R"(pre_tokenizer.type is "Whitespace"; expected "ByteLevel")"},
      {"/pre_tokenizer", R"({"type":"Sequence"})", "pre_tokenizer.pretokenizers is null; expected an array"},
      {"/pre_tokenizer", R"({"type":"Sequence","pretokenizers":[]})",
       "pretokenizers is an empty array; expected ByteLevel"},
      {"/pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":"Digits"}]})",
       R"(pre_tokenizer.pretokenizers[0].type is "Digits"; expected "ByteLevel")"},
      {"/pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":"Punctuation"},{"type":"ByteLevel"}]})",
       R"(pretokenizers[0].type is "Punctuation"; expected Split or Digits, and ByteLevel at the end)"},
      {"/pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"ByteLevel"}]})",
       R"(pretokenizers[0].type is "ByteLevel"; expected Split)"},
      {"/pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":2},{}]})",
       "pretokenizers[0].individual_digits is 2; expected true or false"},
      {"/pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"("}},{}]})",
       "pretokenizers[0].pattern.Regex \"(\": byte 0 of the pattern: \"(\" without \")\""},
      {"/pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"String":""}},{}]})",
       "pretokenizers[0].pattern is an object; expected an object with Regex, or with String that is not empty"},
      {"/pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"String":"x"}},{}]})",
       "pretokenizers[0].behavior is null; expected Isolated, Removed"},
      {"/pre_tokenizer", R"({"type":"Sequence","pretokenizers":[
         {"type":"Split","pattern":{"Regex":"(?<=a+)b"},"behavior":"Isolated"},{"type":"ByteLevel"}]})",
       "small.json: pre_tokenizer: the pattern"},
      {"/pre_tokenizer/type", "3", "pre_tokenizer.type is 3; expected"},
      {"/pre_tokenizer/add_prefix_space", "1", "pre_tokenizer.add_prefix_space is 1; expected true or false"},
      {"/pre_tokenizer/use_regex", "\"x\"", "pre_tokenizer.use_regex is \"x\""},
      {"/pre_tokenizer/pattern", "{}", "pre_tokenizer.pattern is an empty object; expected null"},
      {"/post_processor/type", "\"BertProcessing\"", "post_processor.type is \"BertProcessing\"; expected ByteLevel"},
      {"/post_processor", R"({"type":"TemplateProcessing"})", "post_processor.single is null; expected an array"},
      {"/post_processor", R"({"type":"TemplateProcessing","single":[]})",
       "post_processor.single is an empty array; expected"},
      {"/post_processor", R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"B"}}]})",
       "post_processor.single[0] is an object; expected a SpecialToken of special_tokens, or once the Sequence A"},
      {"/post_processor", R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}],"special_tokens":{}})",
       R"(post_processor.special_tokens["x"] is null; expected an object with ids)"},
      {"/post_processor", R"({"type":"TemplateProcessing","special_tokens":{"x":{"ids":[9]}},
         "single":[{"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}}]})",
       "post_processor puts the id 9 around texts, which no token has"},
      {"/decoder", R"({"type":"WordPiece"})", "decoder.type is \"WordPiece\""},
      {"/decoder", "[]", "decoder is an empty array"},
      {"/normalizer", R"({"type":"NFKC"})", R"(small.json: normalizer.type is "NFKC"; expected "NFC")"},
      {"/normalizer", R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]})",
       R"(normalizer.normalizers[1].type is "Lowercase"; expected "NFC")"},
      {"/unheard_of", R"({"max_length":5})", "unheard_of is an object; expected null, false or nothing"},
      {"/model", "null", "model is null; expected an object of type BPE"},
      {"/model/type", "\"Unigram\"", "model.type is \"Unigram\"; expected \"BPE\""},
      {"/model/dropout", "0.1", "model.dropout is 0.1"},
      {"/model/continuing_subword_prefix", "\"##\"", "model.continuing_subword_prefix is \"##\""},
      {"/model/end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix is \"</w>\""},
      {"/model/byte_fallback", "true", "model.byte_fallback is true"},
      {"/model/ignore_merges", "1", "model.ignore_merges is 1; expected true or false"},
      {"/model/vocab", "null", "model.vocab is null; expected an object"},
      {"/model/vocab", "{}", "model.vocab is an empty object; expected an object of tokens and their ids"},
      {"/model/vocab/a", "-1", R"(model.vocab["a"] is -1; expected an integer from 0 to 4194303)"},
      {"/model/vocab/a", "4194303", R"(model.vocab["a"] is 4194303; expected at most 4271 in a file of 11)"},
      {"/model/vocab/a", "1.0", R"(model.vocab["a"] is 1.0; expected an integer)"},
      {"/model/vocab/a", "\"0\"", R"(model.vocab["a"] is "0"; expected an integer)"},
      {"/model/vocab/a", "4194304", R"(model.vocab["a"] is 4194304; expected an integer)"},
      {"/model/vocab/a", "18446744073709551615", R"(model.vocab["a"] is 18446744073709551615)"},
      {"/model/vocab/c", "1", R"(model.vocab["c"] is 1, which another token has)"},
      {"/model/merges", "{}", "model.merges is an empty object; expected an array"},
      {"/model/merges", "null", "model.merges is null; expected an array"},
      {"/model/merges/1", "\"abc\"", R"(model.merges[1] is "abc"; expected two tokens with a space)"},
      {"/model/merges/1", "\"a b c\"", R"(model.merges[1] is "a b c"; expected two tokens)"},
      {"/model/merges/1", R"(["a"])", "model.merges[1] is an array; expected two tokens"},
      {"/model/merges/1", R"(["a",1])", "model.merges[1] is an array; expected two tokens"},
      {"/model/merges/1", "7", "model.merges[1] is 7"},
      {"/model/merges/1", "\"a x\"", R"(model.merges[1] needs the token "x", which model.vocab lacks)"},
      {"/model/merges/1", "\"x a\"", R"(model.merges[1] needs the token "x")"},
      {"/model/merges/1", "\"b c\"", R"(model.merges[1] needs the token "bc")"},
      {"/model/merges/1", "\"a b\"", R"(model.merges[1] repeats an earlier merge of "a" and "b")"},
      {"/added_tokens", "{}", "added_tokens is an empty object; expected an array"},
      {"/added_tokens/0", "5", "added_tokens[0] is 5; expected an object"},
      {"/added_tokens/0/content", "\"\"", R"(added_tokens[0].content is ""; expected text)"},
      {"/added_tokens/0/content", "null", "added_tokens[0].content is null"},
      {"/added_tokens/0/id", "9", R"(added_tokens[0].id is 9; expected 10, which model.vocab gives "<|endoftext|>")"},
      {"/added_tokens/0/id", "-1", "added_tokens[0].id is -1; expected an integer from 0"},
      {"/added_tokens/0/content", "\"<new>\"", "added_tokens[0].id is 10, which another token has"},
      {"/added_tokens/0/lstrip", "1", "added_tokens[0].lstrip is 1; expected true or false"},
      {"/added_tokens/0/rstrip", "\"\"", "added_tokens[0].rstrip is \"\"; expected true or false"},
      {"/added_tokens/0/single_word", "[]", "added_tokens[0].single_word is an empty array; expected true or false"},
      {"/added_tokens/0/special", "\"yes\"", "added_tokens[0].special is \"yes\"; expected true or false"},
      {"/added_tokens/0/normalized", "2", "added_tokens[0].normalized is 2"},
      {"/added_tokens/1", R"({"id":10,"content":"<|endoftext|>"})",
       R"(added_tokens[1].content repeats "<|endoftext|>")"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.pointer, " = ", c.value));
    Json json = SmallJson();
    json[Json::json_pointer(c.pointer)] = Json::parse(c.value);
    const absl::Status status = ParseByteLevelBpe(json.dump(), "small.json").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("small.json: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

TEST(ParseByteLevelBpe, RefusesWhatIsNoTokenizerAtAll) {
  for (const char* text : {"", "[]", "7", "{}", "{\"model\":", "<html>", "{\"a\":1,\"a\":1}"}) {
    const absl::Status status = ParseByteLevelBpe(text, "small.json").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("small.json"));
  }
}

TEST(ParseByteLevelBpe, RefusesAVocabularyWithoutTheSpaceToPrefix) {
  Json json = SmallJson();
  json["pre_tokenizer"]["add_prefix_space"] = true;
  json["model"]["vocab"].erase("Ġ");
  json["model"]["merges"] = Json::array();
  const absl::Status status = ParseByteLevelBpe(json.dump(), "small.json").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.vocab lacks a space"));
}

TEST(ParseByteLevelBpe, TellsWhatTheTemplatePutsAroundText) {
  Json json = SmallJson();
  json["post_processor"] = Json::parse(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"},
      {"type": "TemplateProcessing", "pair": [], "special_tokens": {"x": {"id": "x", "ids": [10, 0]}, "y": {"ids": [1]}},
       "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                  {"SpecialToken": {"id": "y", "type_id": 0}}]}]})");
  const auto tokenizer = MustParse(json);
  EXPECT_THAT(tokenizer->ids_before_text(), ElementsAre(10, 0));
  EXPECT_THAT(tokenizer->ids_after_text(), ElementsAre(1));
  EXPECT_THAT(MustEncode(*tokenizer, "c"), ElementsAre(2));
}

TEST(ParseByteLevelBpe, HonoursIgnoreMerges) {
  Json json = SmallJson();
  json["model"]["vocab"]["Ġcab"] = 9;
  EXPECT_THAT(MustEncode(*MustParse(json), "a cab"), ElementsAre(0, 3, 2, 6));
  json["model"]["ignore_merges"] = true;
  EXPECT_THAT(MustEncode(*MustParse(json), "a cab"), ElementsAre(0, 9));
}

// Every byte of the file changed in several ways: taken or refused, never worse.
TEST(ParseByteLevelBpe, SurvivesEveryChangedByte) {
  const std::string json = SmallJson().dump();
  int refused = 0;
  for (size_t i = 0; i < json.size(); ++i) {
    for (const char byte : {'\0', '"', '0', '{', ']', 'e', '\\', '\x80', '\xff'}) {
      std::string changed = json;
      changed[i] = byte;
      const auto tokenizer = ParseByteLevelBpe(changed, "small.json");
      if (tokenizer.ok()) {
        const auto ids = (*tokenizer)->Encode("abc ab aé<|endoftext|>a");
        EXPECT_TRUE(ids.ok() || !ids.status().message().empty());
      } else {
        ++refused;
        EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("small.json: "));
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(ParseByteLevelBpe, SurvivesEveryTruncation) {
  const std::string json = SmallJson().dump();
  for (size_t size = 0; size < json.size(); ++size) {
    ASSERT_FALSE(ParseByteLevelBpe(absl::string_view(json).substr(0, size), "small.json").ok()) << size;
  }
}

}  // namespace
}  // namespace kvm
