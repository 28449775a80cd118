#include "tools/cli/descriptor_stream.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace kvm {
namespace {

bool Never() { return false; }

class DescriptorStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    ASSERT_EQ(pipe(ends_), 0);
  }
  void TearDown() override {
    for (const int end : ends_) close(end);
  }

  int ends_[2];
};

TEST_F(DescriptorStreamTest, EverythingArrivesInOrder) {
  std::string sent;
  for (int i = 0; sent.size() < 300000; ++i) sent += std::to_string(i) + "\n";
  std::string received;
  std::thread reader([&] {
    char part[1000];
    while (received.size() < sent.size())
      received.append(part, static_cast<size_t>(read(ends_[0], part, sizeof(part))));
  });
  DescriptorBuffer buffer(ends_[1], Never);
  std::ostream stream(&buffer);
  stream << sent.substr(0, 7) << sent.substr(7) << std::flush;
  reader.join();
  EXPECT_TRUE(stream.good());
  EXPECT_TRUE(received == sent);
}

TEST_F(DescriptorStreamTest, WhatIsLeftIsWrittenAtTheEnd) {
  const std::string path = ::testing::TempDir() + "/descriptor_stream";
  const int file = open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
  ASSERT_GE(file, 0);
  const std::string text(200001, 'x');
  {
    DescriptorBuffer buffer(file, Never);
    std::ostream(&buffer) << text;
  }
  close(file);
  std::ifstream written(path);
  EXPECT_TRUE(std::string(std::istreambuf_iterator<char>(written), {}) == text);
}

// Nobody is told by a signal: what is asked is enough.
TEST_F(DescriptorStreamTest, AFullPipeIsNotWaitedForOnceCancelled) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  DescriptorBuffer buffer(ends_[1], [end] { return std::chrono::steady_clock::now() > end; });
  std::ostream stream(&buffer);
  stream << std::string(1 << 20, 'x') << std::flush;
  EXPECT_FALSE(stream.good());
  EXPECT_LT(std::chrono::steady_clock::now() - end, std::chrono::seconds(5));
}

TEST_F(DescriptorStreamTest, APipeWithRoomTakesWhatIsSaidLast) {
  DescriptorBuffer buffer(ends_[1], [] { return true; });
  std::ostream stream(&buffer);
  stream << "bye" << std::flush;
  EXPECT_TRUE(stream.good());
  char said[4] = {};
  EXPECT_EQ(read(ends_[0], said, 3), 3);
  EXPECT_STREQ(said, "bye");
}

TEST_F(DescriptorStreamTest, AReaderThatIsGoneIsAnError) {
  close(ends_[0]);
  ends_[0] = dup(ends_[1]);
  DescriptorBuffer buffer(ends_[1], Never);
  std::ostream stream(&buffer);
  stream << "nobody hears this" << std::flush;
  EXPECT_FALSE(stream.good());
}

}  // namespace
}  // namespace kvm
