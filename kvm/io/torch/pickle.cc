#include "kvm/io/torch/pickle.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/torch/pickle_opcodes.h"

namespace kvm {
namespace {

using Kind = PickleValue::Kind;

constexpr uint8_t kHighestProtocol = 5;
constexpr char kOrderedDict[] = "collections.OrderedDict";

// The machine that pickles are programs of: a stack, marks on it, and a memo of objects that come again. Every opcode
// takes at least a byte and makes at most one object.
class Machine {
 public:
  Machine(absl::string_view bytes, absl::Span<const absl::string_view> allowed, const std::string& source)
      : bytes_(bytes), allowed_(allowed), source_(source) {}

  absl::StatusOr<Pickle> Run();

 private:
  absl::Status Step(PickleOpcode opcode);
  absl::Status StepRest(PickleOpcode opcode);

  absl::Status Fail(const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat(source_, ": ", why, " (at byte ", opcode_at_, " of the pickle)"));
  }

  // Reading operands.
  absl::StatusOr<absl::string_view> Take(uint64_t size);
  absl::StatusOr<uint64_t> TakeNumber(size_t size);
  absl::StatusOr<absl::string_view> TakeLine();

  // The stack above the last mark, where opcodes may reach.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  absl::Status Need(size_t count) const {
    return stack_.size() - floor() >= count ? absl::OkStatus() : Fail("too few objects on its stack");
  }
  void Push(PickleValue value) {
    stack_.push_back(static_cast<uint32_t>(pickle_.values.size()));
    pickle_.values.push_back(std::move(value));
  }
  void PushNumber(Kind kind, int64_t number) { Push({kind, number, {}, {}}); }
  absl::StatusOr<std::vector<uint32_t>> PopToMark();
  PickleValue& Top() { return pickle_.values[stack_.back()]; }

  absl::Status PushText(uint64_t size);
  absl::Status PushLong();
  absl::Status PushGlobal(absl::string_view module, absl::string_view name);
  absl::Status StackGlobal();
  absl::Status PushTuple(size_t count);
  absl::Status Extend(Kind kind, const std::vector<uint32_t>& items);
  absl::Status ExtendByOne(Kind kind, size_t count);
  absl::Status Reduce();
  absl::Status Build();
  absl::Status Put(uint64_t key);
  absl::Status Get(uint64_t key);

  absl::string_view bytes_;
  absl::Span<const absl::string_view> allowed_;
  const std::string& source_;
  size_t at_ = 0;
  size_t opcode_at_ = 0;
  Pickle pickle_;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;
  absl::flat_hash_map<uint64_t, uint32_t> memo_;
};

absl::StatusOr<absl::string_view> Machine::Take(uint64_t size) {
  if (size > bytes_.size() - at_) return Fail(absl::StrCat("the pickle ends before the ", size, " bytes it announces"));
  const absl::string_view taken = bytes_.substr(at_, size);
  at_ += size;
  return taken;
}

absl::StatusOr<uint64_t> Machine::TakeNumber(size_t size) {
  ASSIGN_OR_RETURN(const absl::string_view bytes, Take(size));
  uint64_t number = 0;
  for (size_t i = 0; i < size; ++i) number |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return number;
}

absl::StatusOr<absl::string_view> Machine::TakeLine() {
  const size_t end = bytes_.find('\n', at_);
  if (end == absl::string_view::npos) return Fail("the pickle ends inside a line");
  const absl::string_view line = bytes_.substr(at_, end - at_);
  at_ = end + 1;
  return line;
}

absl::StatusOr<std::vector<uint32_t>> Machine::PopToMark() {
  if (marks_.empty()) return Fail("no mark on its stack");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<uint32_t> items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return items;
}

absl::Status Machine::PushText(uint64_t size) {
  ASSIGN_OR_RETURN(const absl::string_view text, Take(size));
  if (FindInvalidUtf8(text) != text.size()) return Fail(absl::StrCat("a string that is not UTF-8: ", Quoted(text)));
  Push({Kind::kString, 0, text, {}});
  return absl::OkStatus();
}

absl::Status Machine::PushLong() {
  ASSIGN_OR_RETURN(const uint64_t size, TakeNumber(1));
  if (size > 8) return Fail(absl::StrCat("a whole number of ", size, " bytes, expected at most 8"));
  ASSIGN_OR_RETURN(uint64_t number, TakeNumber(size));
  // Two's complement of `size` bytes.
  if (size > 0 && size < 8 && (number >> (8 * size - 1) & 1) != 0) number |= ~uint64_t{0} << (8 * size);
  PushNumber(Kind::kInt, static_cast<int64_t>(number));
  return absl::OkStatus();
}

absl::Status Machine::PushGlobal(absl::string_view module, absl::string_view name) {
  const std::string full = absl::StrCat(module, ".", name);
  // The index behind the last one stands for OrderedDict.
  size_t index = allowed_.size();
  if (full != kOrderedDict) {
    index = static_cast<size_t>(std::find(allowed_.begin(), allowed_.end(), full) - allowed_.begin());
    if (index == allowed_.size()) {
      return Fail(absl::StrCat("the pickle asks for ", Quoted(full), ", which is refused; expected only ",
                               absl::StartsWith(full, "torch.")
                                   ? "tensors of float64, float32, float16, bfloat16, bool and whole numbers"
                                   : "what tensors are made of"));
    }
  }
  PushNumber(Kind::kGlobal, static_cast<int64_t>(index));
  return absl::OkStatus();
}

absl::Status Machine::StackGlobal() {
  RETURN_IF_ERROR(Need(2));
  const PickleValue& module = pickle_.values[stack_[stack_.size() - 2]];
  const PickleValue& name = Top();
  if (module.kind != Kind::kString || name.kind != Kind::kString) return Fail("a global whose name is no string");
  stack_.resize(stack_.size() - 2);
  return PushGlobal(module.text, name.text);
}

absl::Status Machine::PushTuple(size_t count) {
  RETURN_IF_ERROR(Need(count));
  std::vector<uint32_t> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
  stack_.resize(stack_.size() - count);
  Push({Kind::kTuple, 0, {}, std::move(items)});
  return absl::OkStatus();
}

absl::Status Machine::Extend(Kind kind, const std::vector<uint32_t>& items) {
  RETURN_IF_ERROR(Need(1));
  if (Top().kind != kind) return Fail(absl::StrCat("items for ", Describe(Top().kind), ", expected ", Describe(kind)));
  if (kind == Kind::kDict && items.size() % 2 != 0) return Fail("a key without a value");
  Top().items.insert(Top().items.end(), items.begin(), items.end());
  return absl::OkStatus();
}

absl::Status Machine::ExtendByOne(Kind kind, size_t count) {
  RETURN_IF_ERROR(Need(count + 1));
  const std::vector<uint32_t> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
  stack_.resize(stack_.size() - count);
  return Extend(kind, items);
}

absl::Status Machine::Reduce() {
  RETURN_IF_ERROR(Need(2));
  const uint32_t arguments = stack_.back();
  stack_.pop_back();
  const uint32_t function = stack_.back();
  stack_.pop_back();
  if (pickle_.values[function].kind != Kind::kGlobal) {
    return Fail(absl::StrCat("a call of ", Describe(pickle_.values[function].kind), ", expected a function"));
  }
  if (pickle_.values[arguments].kind != Kind::kTuple) {
    return Fail(absl::StrCat("a call with ", Describe(pickle_.values[arguments].kind), ", expected a tuple"));
  }
  if (pickle_.values[function].number < static_cast<int64_t>(allowed_.size())) {
    Push({Kind::kCall, 0, {}, {function, arguments}});
    return absl::OkStatus();
  }
  if (!pickle_.values[arguments].items.empty()) return Fail("an OrderedDict made of something, expected an empty one");
  Push({Kind::kDict, 0, {}, {}});
  return absl::OkStatus();
}

absl::Status Machine::Build() {
  RETURN_IF_ERROR(Need(2));
  const Kind state = Top().kind;
  stack_.pop_back();
  if (Top().kind == Kind::kDict && state == Kind::kDict) return absl::OkStatus();
  return Fail(absl::StrCat("the pickle sets the state of ", Describe(Top().kind), " to ", Describe(state),
                           ", expected at most attributes of an OrderedDict"));
}

absl::Status Machine::Put(uint64_t key) {
  RETURN_IF_ERROR(Need(1));
  memo_[key] = stack_.back();
  return absl::OkStatus();
}

absl::Status Machine::Get(uint64_t key) {
  const auto found = memo_.find(key);
  if (found == memo_.end()) return Fail(absl::StrCat("it asks for object ", key, ", which it never kept"));
  stack_.push_back(found->second);
  return absl::OkStatus();
}

// Opcodes that push something plain.
absl::Status Machine::Step(PickleOpcode opcode) {
  switch (opcode) {
    case PickleOpcode::kMark:
      marks_.push_back(stack_.size());
      return absl::OkStatus();
    case PickleOpcode::kNone:
      PushNumber(Kind::kNone, 0);
      return absl::OkStatus();
    case PickleOpcode::kNewTrue:
    case PickleOpcode::kNewFalse:
      PushNumber(Kind::kBool, opcode == PickleOpcode::kNewTrue ? 1 : 0);
      return absl::OkStatus();
    case PickleOpcode::kBinInt: {
      ASSIGN_OR_RETURN(const uint64_t number, TakeNumber(4));
      PushNumber(Kind::kInt, static_cast<int32_t>(number));
      return absl::OkStatus();
    }
    case PickleOpcode::kBinInt1:
    case PickleOpcode::kBinInt2: {
      ASSIGN_OR_RETURN(const uint64_t number, TakeNumber(opcode == PickleOpcode::kBinInt1 ? 1 : 2));
      PushNumber(Kind::kInt, static_cast<int64_t>(number));
      return absl::OkStatus();
    }
    case PickleOpcode::kLong1:
      return PushLong();
    case PickleOpcode::kShortBinUnicode:
    case PickleOpcode::kBinUnicode:
    case PickleOpcode::kBinUnicode8: {
      const size_t width = opcode == PickleOpcode::kShortBinUnicode ? 1 : opcode == PickleOpcode::kBinUnicode ? 4 : 8;
      ASSIGN_OR_RETURN(const uint64_t size, TakeNumber(width));
      return PushText(size);
    }
    case PickleOpcode::kEmptyDict:
      PushNumber(Kind::kDict, 0);
      return absl::OkStatus();
    case PickleOpcode::kEmptyList:
      PushNumber(Kind::kList, 0);
      return absl::OkStatus();
    case PickleOpcode::kEmptyTuple:
      PushNumber(Kind::kTuple, 0);
      return absl::OkStatus();
    default:
      return StepRest(opcode);
  }
}

// Opcodes that take from the stack, the memo and the frame.
absl::Status Machine::StepRest(PickleOpcode opcode) {
  switch (opcode) {
    case PickleOpcode::kTuple: {
      ASSIGN_OR_RETURN(std::vector<uint32_t> items, PopToMark());
      Push({Kind::kTuple, 0, {}, std::move(items)});
      return absl::OkStatus();
    }
    case PickleOpcode::kTuple1:
      return PushTuple(1);
    case PickleOpcode::kTuple2:
      return PushTuple(2);
    case PickleOpcode::kTuple3:
      return PushTuple(3);
    case PickleOpcode::kAppend:
      return ExtendByOne(Kind::kList, 1);
    case PickleOpcode::kSetItem:
      return ExtendByOne(Kind::kDict, 2);
    case PickleOpcode::kAppends:
    case PickleOpcode::kSetItems: {
      ASSIGN_OR_RETURN(const std::vector<uint32_t> items, PopToMark());
      return Extend(opcode == PickleOpcode::kAppends ? Kind::kList : Kind::kDict, items);
    }
    case PickleOpcode::kGlobal: {
      ASSIGN_OR_RETURN(const absl::string_view module, TakeLine());
      ASSIGN_OR_RETURN(const absl::string_view name, TakeLine());
      return PushGlobal(module, name);
    }
    case PickleOpcode::kStackGlobal:
      return StackGlobal();
    case PickleOpcode::kReduce:
      return Reduce();
    case PickleOpcode::kBuild:
      return Build();
    case PickleOpcode::kBinPersId: {
      RETURN_IF_ERROR(Need(1));
      const uint32_t id = stack_.back();
      stack_.pop_back();
      Push({Kind::kPersistentId, 0, {}, {id}});
      return absl::OkStatus();
    }
    case PickleOpcode::kMemoize:
      return Put(memo_.size());
    case PickleOpcode::kBinPut:
    case PickleOpcode::kLongBinPut: {
      ASSIGN_OR_RETURN(const uint64_t key, TakeNumber(opcode == PickleOpcode::kBinPut ? 1 : 4));
      return Put(key);
    }
    case PickleOpcode::kBinGet:
    case PickleOpcode::kLongBinGet: {
      ASSIGN_OR_RETURN(const uint64_t key, TakeNumber(opcode == PickleOpcode::kBinGet ? 1 : 4));
      return Get(key);
    }
    case PickleOpcode::kFrame:
      // Says how far the reader may read ahead.
      return TakeNumber(8).status();
    default:
      return Fail(absl::StrCat("the pickle uses ", PickleOpcodeName(static_cast<uint8_t>(opcode)),
                               ", which is refused; expected only what plain dicts of tensors need"));
  }
}

absl::StatusOr<Pickle> Machine::Run() {
  if (bytes_.size() > kMaxPickleBytes) {
    return Fail(absl::StrCat("a pickle of ", bytes_.size(), " bytes, expected at most ", kMaxPickleBytes));
  }
  if (bytes_.empty() || static_cast<PickleOpcode>(bytes_[0]) != PickleOpcode::kProto) {
    return Fail("no pickle of protocol 2 or later");
  }
  at_ = 1;
  ASSIGN_OR_RETURN(const uint64_t protocol, TakeNumber(1));
  if (protocol < 2 || protocol > kHighestProtocol) {
    return Fail(absl::StrCat("pickle protocol ", protocol, ", expected 2 to ", kHighestProtocol));
  }
  while (true) {
    opcode_at_ = at_;
    ASSIGN_OR_RETURN(const uint64_t opcode, TakeNumber(1));
    if (static_cast<PickleOpcode>(opcode) == PickleOpcode::kStop) break;
    RETURN_IF_ERROR(Step(static_cast<PickleOpcode>(opcode)));
  }
  if (stack_.size() != 1 || !marks_.empty()) {
    return Fail(absl::StrCat("it ends with ", stack_.size(), " objects and ", marks_.size(),
                             " marks on its stack, expected one object"));
  }
  if (at_ != bytes_.size()) return Fail(absl::StrCat(bytes_.size() - at_, " bytes behind the end of the pickle"));
  pickle_.root = stack_[0];
  return std::move(pickle_);
}

}  // namespace

absl::string_view Describe(PickleValue::Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "a bool";
    case Kind::kInt:
      return "a whole number";
    case Kind::kString:
      return "a string";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kList:
      return "a list";
    case Kind::kDict:
      return "a dict";
    case Kind::kGlobal:
      return "a function or class";
    case Kind::kCall:
      return "an object";
    case Kind::kPersistentId:
      return "a storage";
  }
  return "";
}

absl::StatusOr<Pickle> ReadPickle(absl::string_view bytes, absl::Span<const absl::string_view> allowed,
                                  const std::string& source) {
  return Machine(bytes, allowed, source).Run();
}

}  // namespace kvm
