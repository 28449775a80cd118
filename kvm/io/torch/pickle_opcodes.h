#ifndef KVM_IO_TORCH_PICKLE_OPCODES_H_
#define KVM_IO_TORCH_PICKLE_OPCODES_H_

// The opcodes of Python's pickle protocols 0 to 5, as the documentation of the module pickletools names them.

#include <cstdint>
#include <string>

namespace kvm {

// Those that the reader or the writer knows.
enum class PickleOpcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyDict = '}',
  kEmptyList = ']',
  kEmptyTuple = ')',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

// "NEWOBJ"; "opcode 0xff" for bytes that are no opcode.
std::string PickleOpcodeName(uint8_t opcode);

}  // namespace kvm

#endif  // KVM_IO_TORCH_PICKLE_OPCODES_H_
