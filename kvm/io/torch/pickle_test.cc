#include "kvm/io/torch/pickle.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/io/torch/pickle_opcodes.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;
using Kind = PickleValue::Kind;

constexpr absl::string_view kAllowed[] = {"module.function", "module.Class"};

absl::StatusOr<Pickle> Read(absl::string_view bytes) { return ReadPickle(bytes, kAllowed, "p"); }

// Protocol 2, the body, STOP.
std::string Program(absl::string_view body) { return absl::StrCat(absl::string_view("\x80\x02", 2), body, "."); }

// A value as Python would print it, for flat comparison.
std::string Show(const Pickle& pickle, const PickleValue& value) {
  std::vector<std::string> items;
  if (value.kind == Kind::kTuple || value.kind == Kind::kList || value.kind == Kind::kDict) {
    for (size_t i = 0; i < value.items.size(); ++i) items.push_back(Show(pickle, pickle.Item(value, i)));
  }
  std::string joined;
  for (const std::string& item : items) absl::StrAppend(&joined, joined.empty() ? "" : " ", item);
  switch (value.kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.number != 0 ? "True" : "False";
    case Kind::kInt:
      return absl::StrCat(value.number);
    case Kind::kString:
      return absl::StrCat("'", value.text, "'");
    case Kind::kTuple:
      return absl::StrCat("(", joined, ")");
    case Kind::kList:
      return absl::StrCat("[", joined, "]");
    case Kind::kDict:
      return absl::StrCat("{", joined, "}");
    case Kind::kGlobal:
      return std::string(kAllowed[value.number]);
    case Kind::kCall:
      return absl::StrCat(Show(pickle, pickle.Item(value, 0)), Show(pickle, pickle.Item(value, 1)));
    case Kind::kPersistentId:
      return absl::StrCat("storage ", Show(pickle, pickle.Item(value, 0)));
  }
  return "";
}

std::string Shown(absl::string_view bytes) {
  const auto pickle = Read(bytes);
  EXPECT_TRUE(pickle.ok()) << pickle.status();
  return pickle.ok() ? Show(*pickle, pickle->Root()) : "";
}

void ExpectRefused(absl::string_view bytes, const std::string& message) {
  const auto pickle = Read(bytes);
  ASSERT_FALSE(pickle.ok()) << message;
  EXPECT_EQ(pickle.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(pickle.status().message()), ::testing::StartsWith("p: "));
  EXPECT_THAT(std::string(pickle.status().message()), HasSubstr(message));
}

// pickle.dumps({'a': [1, -2, 300, 70000, True, False, None, 'xé', (3,), (1, 2, 3, 4)], 'b': {}, 'c': 2**40,
// 'd': -2**40}, protocol) of Python 3.11.
constexpr char kProtocol2Bytes[] =
    "\x80\x02}q\x00(X\x01\x00\x00\x00"
    "aq\x01]q\x02(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00\x88\x89NX\x03\x00\x00\x00x\xc3\xa9q\x03K\x03\x85q\x04(K"
    "\x01K\x02K\x03K\x04tq\x05"
    "eX\x01\x00\x00\x00"
    "bq\x06}q\x07X\x01\x00\x00\x00"
    "cq\x08\x8a\x06\x00\x00\x00\x00\x00\x01X\x01\x00\x00\x00"
    "dq\t\x8a\x06\x00\x00\x00\x00\x00\xffu.";
constexpr char kProtocol4Bytes[] =
    "\x80\x04\x95R\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01"
    "a\x94]\x94(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00\x88\x89N\x8c\x03x\xc3\xa9\x94K\x03\x85\x94(K\x01K\x02K\x03K"
    "\x04t\x94"
    "e\x8c\x01"
    "b\x94}\x94\x8c\x01"
    "c\x94\x8a\x06\x00\x00\x00\x00\x00\x01\x8c\x01"
    "d\x94\x8a\x06\x00\x00\x00\x00\x00\xffu.";
constexpr absl::string_view kProtocol2(kProtocol2Bytes, sizeof(kProtocol2Bytes) - 1);
constexpr absl::string_view kProtocol4(kProtocol4Bytes, sizeof(kProtocol4Bytes) - 1);
constexpr char kShown[] =
    "{'a' [1 -2 300 70000 True False None 'x\xc3\xa9' (3) (1 2 3 4)] 'b' {} 'c' 1099511627776 'd' -1099511627776}";

TEST(ReadPickle, ReadsPlainObjects) {
  EXPECT_EQ(Shown(kProtocol2), kShown);
  EXPECT_EQ(Shown(kProtocol4), kShown);
}

TEST(ReadPickle, HandsOutCallsAndStorages) {
  EXPECT_EQ(Shown(Program("cmodule\nfunction\n(K\x05K\x06tQ\x85R")), "module.function(storage (5 6))");
  EXPECT_EQ(Shown(Program("cmodule\nfunction\nq\x07(h\x07h\x07tR")),
            "module.function(module.function module.function)");
  EXPECT_EQ(Shown(Program("\x8c\x06module\x8c\x05"
                          "Class\x93")),
            "module.Class");
}

TEST(ReadPickle, OrderedDictsAreDicts) {
  // With an attribute, as the state_dict of a module has.
  EXPECT_EQ(Shown(Program("ccollections\nOrderedDict\n)R(\x8c\x01"
                          "aK\x01u}\x8c\x09_metadataK\x02sb")),
            "{'a' 1}");
  EXPECT_EQ(Shown(Program("ccollections\nOrderedDict\n)R\x8c\x01"
                          "aK\x01s")),
            "{'a' 1}");
  ExpectRefused(Program("ccollections\nOrderedDict\n]\x85R"), "an OrderedDict made of something");
}

TEST(ReadPickle, RefusesGlobalsByName) {
  ExpectRefused(Program("cposix\nsystem\n\x8c\x02ls\x85R"), "the pickle asks for \"posix.system\", which is refused");
  ExpectRefused(Program("\x8c\x08"
                        "builtins\x8c\x04"
                        "eval\x93"),
                "the pickle asks for \"builtins.eval\"");
  ExpectRefused(Program("cmodule\nfunctions\n"), "\"module.functions\"");
  ExpectRefused(Program("c\n\n"), "\".\"");
  ExpectRefused(Program("K\x01K\x02\x93"), "a global whose name is no string");
}

TEST(ReadPickle, RefusesOpcodesByName) {
  ExpectRefused(Program("cmodule\nClass\n)\x81"), "the pickle uses NEWOBJ, which is refused");
  ExpectRefused(Program("(imodule\nClass\n"), "the pickle uses INST");
  ExpectRefused(Program("\x82\x01"), "the pickle uses EXT1");
  ExpectRefused(Program("G\x3f\xf0\x00\x00\x00\x00\x00\x00"), "the pickle uses BINFLOAT");
  ExpectRefused(Program("\xff"), "the pickle uses opcode 0xff");
  ExpectRefused(Program("\x80\x02N"), "the pickle uses PROTO");
}

TEST(PickleOpcodeName, KnowsAllAndNoOthers) {
  int known = 0;
  for (int opcode = 0; opcode < 256; ++opcode) {
    known += PickleOpcodeName(static_cast<uint8_t>(opcode)).rfind("opcode ", 0) != 0;
  }
  EXPECT_EQ(known, 68);  // len(pickletools.opcodes)
}

TEST(ReadPickle, RefusesBrokenPrograms) {
  ExpectRefused("", "no pickle of protocol 2 or later");
  ExpectRefused("]q.", "no pickle of protocol 2 or later");
  ExpectRefused(absl::string_view("\x80\x01].", 4), "pickle protocol 1, expected 2 to 5");
  ExpectRefused("\x80\x06].", "pickle protocol 6");
  ExpectRefused("\x80\x02]", "the pickle ends before the 1 bytes it announces");
  ExpectRefused("\x80\x02X\xff\xff\xff\xff", "ends before the 4294967295 bytes");
  ExpectRefused("\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xff", "ends before the 18446744073709551615 bytes");
  ExpectRefused(
      "\x80\x02"
      "cmodule",
      "ends inside a line");
  ExpectRefused(Program("]") + "x", "1 bytes behind the end");
  ExpectRefused(Program(""), "ends with 0 objects and 0 marks");
  ExpectRefused(Program("]]"), "ends with 2 objects");
  ExpectRefused(Program("]("), "1 marks");
  ExpectRefused(Program("t"), "no mark on its stack");
  ExpectRefused(Program("K\x01(\x85"), "too few objects");
  ExpectRefused(Program("]K\x01s"), "too few objects");
  ExpectRefused(Program("}K\x01K\x02K\x03\x87s"), "too few objects");
  ExpectRefused(Program("]K\x01K\x02s"), "items for a list, expected a dict");
  ExpectRefused(Program("}(K\x01u"), "a key without a value");
  ExpectRefused(Program("}K\x01"
                        "a"),
                "items for a dict, expected a list");
  ExpectRefused(Program("(K\x01u"), "too few objects");
  ExpectRefused(Program("h\x05"), "it asks for object 5, which it never kept");
  ExpectRefused(Program("q\x05"), "too few objects");
  ExpectRefused(Program("K\x01)R"), "a call of a whole number");
  ExpectRefused(Program("cmodule\nfunction\n]R"), "a call with a list");
  ExpectRefused(Program("K\x01}b"), "sets the state of a whole number");
  ExpectRefused(Program("\x8c\x01\xff"), "a string that is not UTF-8");
  ExpectRefused(Program("\x8a\x09"
                        "123456789"),
                "a whole number of 9 bytes");
}

TEST(ReadPickle, WholeNumbers) {
  EXPECT_EQ(Shown(Program(absl::string_view("\x8a\x00", 2))), "0");
  EXPECT_EQ(Shown(Program("\x8a\x01\xff")), "-1");
  EXPECT_EQ(Shown(Program(absl::string_view("\x8a\x02\xff\x00", 4))), "255");
  EXPECT_EQ(Shown(Program("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f")), "9223372036854775807");
  EXPECT_EQ(Shown(Program(absl::string_view("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80", 10))), "-9223372036854775808");
}

TEST(ReadPickle, DepthCostsNoStackAndLoopsAreHarmless) {
  // A million lists, each in the one before.
  const std::string deep = std::string(1000000, ']') + std::string(999999, 'a');
  const auto pickle = Read(Program(deep));
  ASSERT_TRUE(pickle.ok()) << pickle.status();
  EXPECT_EQ(pickle->values.size(), 1000000u);
  // A list that holds itself.
  const auto loop =
      Read(Program("]q\x01h\x01"
                   "a"));
  ASSERT_TRUE(loop.ok()) << loop.status();
  EXPECT_EQ(loop->Root().items, std::vector<uint32_t>{loop->root});
}

TEST(ReadPickle, BoundsItsLength) { ExpectRefused(std::string(kMaxPickleBytes + 1, ']'), "expected at most 8388608"); }

TEST(ReadPickle, SurvivesEveryTruncationAndFlip) {
  const std::string programs[] = {
      std::string(kProtocol2), std::string(kProtocol4),
      Program("ccollections\nOrderedDict\n)Rq\x01(\x8c\x01wcmodule\nfunction\n(K\x05K\x06tQ\x85Ruh\x01}b0")};
  for (const std::string& program : programs) {
    for (size_t size = 0; size < program.size(); ++size) {
      const std::vector<char> cut(program.begin(), program.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_FALSE(Read({cut.data(), cut.size()}).ok()) << size;
    }
    std::vector<char> changed(program.begin(), program.end());
    for (char& byte : changed) {
      const char original = byte;
      for (int value = 0; value < 256; ++value) {
        byte = static_cast<char>(value);
        const auto pickle = Read({changed.data(), changed.size()});
        if (!pickle.ok()) continue;
        for (const PickleValue& v : pickle->values) {
          for (const uint32_t item : v.items) ASSERT_LT(item, pickle->values.size());
        }
      }
      byte = original;
    }
  }
}

}  // namespace
}  // namespace kvm
