#ifndef KVM_TESTING_COMMAND_TESTING_H_
#define KVM_TESTING_COMMAND_TESTING_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/kernels/tensor.h"
#include "tools/all_commands.h"
#include "tools/cli/command.h"
#include "tools/cli/console.h"

namespace kvm {

// Runs commands as the binary does, with strings for streams.
class CommandFixture : public ::testing::Test {
 protected:
  // Returns the exit status; out_ and err_ hold what was written by this run alone.
  int Run(const std::vector<std::string>& args, const std::string& input = "") {
    std::istringstream in(input);
    std::ostringstream out, err;
    Console console{in, out, err, false, [this] {
                      if (interrupt_at_ > 0 && --interrupt_at_ == 0) interrupted_ = true;
                      return interrupted_;
                    }};
    console.devices = devices_;
    const int exit_status = RunCommandLine(AllCommands(), args, console);
    out_ = out.str();
    err_ = err.str();
    return exit_status;
  }

  // A fresh path under the test's own folder.
  static std::string Path(const std::string& name) {
    const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
    return ::testing::TempDir() + "/" + test->test_suite_name() + "." + test->name() + "." + name;
  }

  static std::string Golden(const std::string& name) { return "testing/golden/" + name; }
  static std::string Gpt2() { return "testing/data/gpt2/tokenizer.json"; }

  static std::string ReadAll(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }

  static void WriteAll(const std::string& path, const std::string& contents) {
    std::ofstream(path, std::ios::binary) << contents;
  }

  static bool Exists(const std::string& path) { return std::ifstream(path).good(); }

  // Makes the first element of an F32 tensor in a safetensors file NaN: of the first one whose name has this part.
  static void Poison(const std::string& path, const std::string& part) {
    std::string file = ReadAll(path);
    const size_t name = file.find(part), begin = file.find("\"data_offsets\":[", name) + 16;
    ASSERT_TRUE(name != std::string::npos && begin > name) << part;
    uint64_t header;
    std::memcpy(&header, file.data(), sizeof(header));
    const float nan = std::nanf("");
    std::memcpy(&file[8 + header + std::stoull(file.substr(begin))], &nan, sizeof(nan));
    WriteAll(path, file);
  }

  static void WriteTensor(const std::string& path, const std::string& name, const Tensor& tensor) {
    ASSERT_TRUE(WriteSafetensors(path, {{name, tensor.view()}}).ok());
  }

  std::vector<Device> devices_;  // beside the processor
  std::string out_;
  std::string err_;
  bool interrupted_ = false;
  int interrupt_at_ = 0;  // unless 0, the question for Ctrl-C that is first answered with yes
};

}  // namespace kvm

#endif  // KVM_TESTING_COMMAND_TESTING_H_
