// What a compiler says that was asked for an older standard.

#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

struct Compiled {
  int exit_status;
  std::string output;
};

Compiled Compile(const std::string& header, const std::string& standard) {
  const std::string command = "${CXX:-c++} -I. -fsyntax-only -std=" + standard + " -x c++ " + header + " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  while (const size_t count = fread(buffer, 1, sizeof(buffer), pipe)) output.append(buffer, count);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

TEST(Standard, OlderOnesAreRefusedWithASentence) {
  const Compiled compiled = Compile("kvm/base/check.h", "c++14");
  EXPECT_NE(compiled.exit_status, 0);
  EXPECT_THAT(compiled.output, HasSubstr("kvm needs C++17. In .bazelrc: build --cxxopt=-std=c++17"));
}

TEST(Standard, TheFloorAndNewerOnesAreNot) {
  for (const char* standard : {"c++17", "c++20"}) {
    const Compiled compiled = Compile("kvm/base/check.h", standard);
    EXPECT_EQ(compiled.exit_status, 0) << compiled.output;
  }
}

}  // namespace
}  // namespace kvm
