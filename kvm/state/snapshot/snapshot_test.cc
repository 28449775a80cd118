#include "kvm/state/snapshot/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/content_hash.h"
#include "kvm/base/file/failing_file_operations.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/state/host_layer_state.h"
#include "kvm/state/snapshot/snapshot_testing.h"

namespace kvm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class SnapshotTest : public ::testing::Test {
 protected:
  SnapshotTest() {
    folder_ = testing::TempDir() + "/snapshotXXXXXX";
    EXPECT_NE(mkdtemp(&folder_[0]), nullptr);
    path_ = folder_ + "/talk.kvmstate";
  }

  void Write(const Session& session) { ASSERT_TRUE(WriteSnapshot(path_, session, TestIdentity()).ok()); }
  absl::StatusOr<Session> Read(const ModelIdentity& identity = TestIdentity()) {
    return ReadSnapshot(path_, identity, FreshSequence());
  }
  std::string ErrorOf(const ModelIdentity& identity = TestIdentity()) {
    const absl::StatusOr<Session> session = Read(identity);
    EXPECT_FALSE(session.ok());
    return std::string(session.status().message());
  }
  int64_t NumFiles() {
    return std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator());
  }

  // Replaces the header by a changed one with a right hash.
  void ChangeHeader(const std::function<void(SnapshotHeader*)>& change) {
    const std::string file = ReadFile(path_).value();
    SnapshotHeader header = ReadSnapshotHeader(path_).value();
    uint64_t length;
    std::memcpy(&length, &file[16], sizeof(length));
    const std::string data = file.substr((32 + length + 63) / 64 * 64);
    change(&header);
    const std::string bytes = header.SerializeAsString();
    ContentHash hash;
    hash.Add(bytes);
    const uint64_t frame[2] = {bytes.size(), hash.Value()};
    std::string changed = file.substr(0, 16) + std::string(reinterpret_cast<const char*>(frame), 16) + bytes;
    changed.resize((changed.size() + 63) / 64 * 64);
    ASSERT_TRUE(WriteFileAtomically(path_, changed + data).ok());
  }

  std::string folder_;
  std::string path_;
};

TEST_F(SnapshotTest, ReadsBackWhatWasWritten) {
  for (const int64_t rows : {0, 1, 7, 1000}) {
    for (const int64_t tokens : {0, 1, 16, 17}) {
      Session session = TestSession(3, tokens, rows);
      if (tokens == 16) session.sampler.reset();
      if (tokens == 17) session.logits.clear();
      Write(session);
      const absl::StatusOr<Session> read = Read();
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_TRUE(AreEqual(*read, session));
      EXPECT_EQ(ReadSnapshotTokens(path_).value(), session.tokens);
      EXPECT_TRUE(CheckSnapshot(path_).ok());
    }
  }
  EXPECT_EQ(NumFiles(), 1);
}

TEST_F(SnapshotTest, ThreadsReadTheSameAndNameTheSameFault) {
  const Session session = TestSession(3, 1000, 400);
  Write(session);
  ThreadPool pool(4, /*oversubscribe=*/true);
  const std::string file = ReadFile(path_).value();
  const absl::StatusOr<Session> read = ReadSnapshot(path_, TestIdentity(), FreshSequence(), &pool);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(AreEqual(*read, session));
  for (size_t at = 64; at < file.size(); at += 997) {
    std::string damaged = file;
    damaged[at] ^= 4;
    damaged[file.size() - 1] ^= 4;  // and the last section: the first one at fault is named
    ASSERT_TRUE(WriteFileAtomically(path_, damaged).ok());
    const absl::StatusOr<Session> bad = ReadSnapshot(path_, TestIdentity(), FreshSequence(), &pool);
    EXPECT_EQ(std::string(bad.status().message()), ErrorOf());
  }
}

TEST_F(SnapshotTest, TheSameSessionGivesTheSameBytes) {
  Write(TestSession(3, 10, 4));
  const std::string first = ReadFile(path_).value();
  Session read = *Read();
  ASSERT_TRUE(WriteSnapshot(path_, read, TestIdentity()).ok());
  EXPECT_EQ(ReadFile(path_).value(), first);
}

TEST_F(SnapshotTest, TheHeaderSaysWhatTheStateConsistsOf) {
  Write(TestSession(3, 10, 4));
  const absl::StatusOr<SnapshotHeader> header = ReadSnapshotHeader(path_);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->model().fingerprint(), 0x0123456789abcdefu);
  EXPECT_EQ(header->model().stack(), "width: 3");
  EXPECT_EQ(header->position(), 10);
  ASSERT_EQ(header->layers_size(), 2);
  EXPECT_EQ(header->layers(0).rows(), 4);
  EXPECT_EQ(header->layers(0).bytes(), 4 * (3 * 4 + 1) + 5 * 4);
  EXPECT_EQ(header->layers(0).rows_end(), 4);
  EXPECT_EQ(header->layers(0).window_begin(), 1);
  EXPECT_EQ(header->layers(0).window_end(), 2);
  EXPECT_EQ(header->layers(1).bytes(), 3 * 4 + 1 + 2 * 4);
  int64_t bytes = 0;
  for (const SnapshotSection& tensor : header->tensors()) bytes += static_cast<int64_t>(tensor.size());
  EXPECT_EQ(bytes, TestSession(3, 10, 4).state.ByteSize());
}

// Maps as it is: every section begins at a multiple of 64 of the file.
TEST_F(SnapshotTest, SectionsLieAsInMemory) {
  const Session session = TestSession(3, 10, 4);
  Write(session);
  const std::string file = ReadFile(path_).value();
  const SnapshotHeader header = ReadSnapshotHeader(path_).value();
  uint64_t length;
  std::memcpy(&length, &file[16], sizeof(length));
  const uint64_t data = (32 + length + 63) / 64 * 64;
  EXPECT_EQ(header.tokens().offset(), 0u);
  EXPECT_EQ(std::memcmp(&file[data], session.tokens.data(), 40), 0);
  EXPECT_EQ(header.logits().offset(), 64u);
  EXPECT_EQ(std::memcmp(&file[data + 64], session.logits.data(), 12), 0);
  EXPECT_EQ(header.tensors(0).name(), "layer.0.mixer.rows");
  EXPECT_EQ(header.tensors(0).offset(), 128u);
  const auto& rows = static_cast<const RowsState&>(*HostLayer(session.state, 0).mixer);
  EXPECT_EQ(std::memcmp(&file[data + 128], rows.rows.data(), 48), 0);
}

TEST_F(SnapshotTest, EveryFlippedBitIsFoundAndItsPlaceNamed) {
  Write(TestSession(3, 10, 4));
  const std::string file = ReadFile(path_).value();
  const SnapshotHeader header = ReadSnapshotHeader(path_).value();
  uint64_t length;
  std::memcpy(&length, &file[16], sizeof(length));
  const uint64_t data = (32 + length + 63) / 64 * 64;
  std::vector<std::pair<uint64_t, std::string>> ends = {{32 + length, "snapshot header:"}};
  const auto add = [&](const SnapshotSection& section) {
    ends.emplace_back(data + section.offset() + section.size(), "snapshot section " + section.name() + ":");
  };
  add(header.tokens());
  add(header.logits());
  for (const SnapshotSection& tensor : header.tensors()) add(tensor);
  ASSERT_EQ(ends.back().first, file.size());

  const int fd = open(path_.c_str(), O_WRONLY);
  ASSERT_GE(fd, 0);
  size_t part = 0;
  for (size_t i = 0; i < file.size(); ++i) {
    while (i >= ends[part].first) ++part;
    for (int bit = 0; bit < 8; ++bit) {
      const char flipped = static_cast<char>(file[i] ^ 1 << bit);
      ASSERT_EQ(pwrite(fd, &flipped, 1, static_cast<off_t>(i)), 1);
      const absl::Status status = Read().status();
      // A version that became 0 is none, all others are newer.
      const bool newer = i >= 8 && i < 16 && (i > 8 || bit > 0);
      ASSERT_EQ(status.code(), newer ? absl::StatusCode::kUnimplemented : absl::StatusCode::kInvalidArgument)
          << "byte " << i << ", bit " << bit;
      ASSERT_THAT(std::string(status.message()), AllOf(StartsWith(path_), HasSubstr(ends[part].second))) << i;
      ASSERT_EQ(CheckSnapshot(path_), status);
      const bool in_header = part == 0;
      ASSERT_EQ(ReadSnapshotHeader(path_).ok(), !in_header) << i;
    }
    ASSERT_EQ(pwrite(fd, &file[i], 1, static_cast<off_t>(i)), 1);
  }
  close(fd);
  EXPECT_TRUE(Read().ok());
}

TEST_F(SnapshotTest, EveryOtherSizeIsRefused) {
  Write(TestSession(3, 10, 4));
  const std::string file = ReadFile(path_).value();
  for (size_t size = file.size(); size-- > 0;) {
    ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(size)), 0);
    const absl::Status status = Read().status();
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << size;
    ASSERT_THAT(std::string(status.message()), HasSubstr("snapshot ")) << size;
    ASSERT_EQ(ReadSnapshotHeader(path_).status(), status) << size;
    ASSERT_EQ(ReadSnapshotTokens(path_).status(), status) << size;
  }
  for (const std::string& more : {std::string(1, '\0'), std::string(64, '\0'), std::string("x")}) {
    ASSERT_TRUE(WriteFileAtomically(path_, file + more).ok());
    EXPECT_THAT(ErrorOf(), HasSubstr("bytes follow the last section; expected none"));
  }
}

TEST_F(SnapshotTest, DamagedTokensAreNotHandedOut) {
  Write(TestSession(3, 10, 4));
  std::string file = ReadFile(path_).value();
  uint64_t length;
  std::memcpy(&length, &file[16], sizeof(length));
  file[(32 + length + 63) / 64 * 64] ^= 1;
  ASSERT_TRUE(WriteFileAtomically(path_, file).ok());
  EXPECT_THAT(std::string(ReadSnapshotTokens(path_).status().message()), HasSubstr("section tokens"));
  EXPECT_TRUE(ReadSnapshotHeader(path_).ok());
}

TEST_F(SnapshotTest, AnotherModelIsRefusedWithBothFingerprints) {
  Write(TestSession(3, 10, 4));
  ModelIdentity other = TestIdentity();
  other.fingerprint = 0xfedcba9876543210u;
  EXPECT_EQ(Read(other).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(ErrorOf(other), AllOf(StartsWith(path_), HasSubstr("0123456789abcdef"), HasSubstr("fedcba9876543210")));
}

TEST_F(SnapshotTest, OtherOptionsAreRefusedWithBothValues) {
  Write(TestSession(3, 10, 4));
  ModelIdentity other = TestIdentity();
  other.weights = WeightType::kBF16;
  EXPECT_EQ(Read(other).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(ErrorOf(other), HasSubstr("of weights as-is, the loaded model is of bf16"));
  other = TestIdentity();
  other.state = DType::kI8;
  EXPECT_THAT(ErrorOf(other), HasSubstr("of state dtype BF16, the loaded model is of I8"));
  other = TestIdentity();
  other.chunked_recurrences = true;
  EXPECT_THAT(ErrorOf(other), HasSubstr("without chunked recurrences, the loaded model is of one with chunked"));
  other = TestIdentity();
  other.provenance = true;
  EXPECT_THAT(ErrorOf(other), HasSubstr("without provenance, the loaded model is of one with provenance"));
  other = TestIdentity();
  other.stack = "the same, written otherwise";
  EXPECT_TRUE(Read(other).ok());
}

TEST_F(SnapshotTest, SizesThatAHeaderStatesAllocateNothing) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  const struct {
    std::function<void(SnapshotHeader*)> change;
    std::string expected;
  } cases[] = {
      {[](SnapshotHeader* h) { h->mutable_tokens()->set_shape(0, kHuge); },
       "section tokens: 40 bytes; expected 4398046"},
      {[](SnapshotHeader* h) {
         h->mutable_tokens()->set_shape(0, kHuge);
         h->mutable_tokens()->set_size(4 * kHuge);
       },
       "section tokens: ends beyond the data"},
      {[](SnapshotHeader* h) { h->mutable_logits()->set_shape(0, int64_t{1} << 62); }, "63 bits"},
      {[](SnapshotHeader* h) { h->mutable_tensors(0)->set_shape(0, -4); }, "shape [-4, 3]"},
      {[](SnapshotHeader* h) { h->mutable_tensors(0)->set_shape(1, 0); }, "shape [4, 0]"},
      {[](SnapshotHeader* h) {
         for (int i = 0; i < 100; ++i) h->mutable_tensors(0)->add_shape(1);
       },
       "too many extents"},
      {[](SnapshotHeader* h) { h->mutable_tensors(0)->set_offset(192); },
       "begins at byte 192 of the data; expected 128"},
      {[](SnapshotHeader* h) { h->mutable_tensors(0)->set_offset(~uint64_t{0}); }, "of the data; expected 128"},
      {[](SnapshotHeader* h) { h->mutable_tensors(0)->set_dtype("F\n"); }, "unknown dtype F\\x0a"},
      {[](SnapshotHeader* h) { h->set_position(-1); }, "position -1"},
      {[](SnapshotHeader* h) { h->set_position(11); }, "section tokens: expected that name and I32 [11]"},
      {[](SnapshotHeader* h) { h->mutable_tokens()->set_dtype("F32"); },
       "section tokens: expected that name and I32 [10]"},
      {[](SnapshotHeader* h) { h->mutable_tokens()->set_name("ids"); },
       "section tokens: expected that name and I32 [10]"},
      {[](SnapshotHeader* h) { h->mutable_logits()->set_dtype("I32"); }, "section logits: expected that name, F32"},
      {[](SnapshotHeader* h) { h->mutable_numbers(1)->set_value(kHuge); },
       "layer.0.mixer.rows: got F32 [4, 3], expected F32 [1099511627776, 3]"},
      {[](SnapshotHeader* h) { h->mutable_numbers(0)->set_value(9); }, "position 10; expected 9"},
      {[](SnapshotHeader* h) { h->mutable_tensors(0)->set_name("rows"); }, "layer.0.mixer.rows: got none"},
      {[](SnapshotHeader* h) { h->mutable_numbers(1)->set_name("position"); }, "position: got 2 of that name"},
      {[](SnapshotHeader* h) { h->add_numbers()->set_name("spare"); }, "spare"},
  };
  for (const auto& c : cases) {
    Write(TestSession(3, 10, 4));
    ChangeHeader(c.change);
    EXPECT_THAT(ErrorOf(), AllOf(StartsWith(path_), HasSubstr(c.expected)));
  }
}

TEST_F(SnapshotTest, SectionsInAnotherOrderAreRefused) {
  const struct {
    std::function<void(SnapshotHeader*)> change;
    std::string expected;
  } cases[] = {
      {[](SnapshotHeader* h) {
         h->mutable_tokens()->set_offset(64);
         h->mutable_logits()->set_offset(0);
       },
       "section tokens: begins at byte 64 of the data; expected 0"},
      {[](SnapshotHeader* h) { h->mutable_tensors()->SwapElements(0, 1); },
       "section layer.0.mixer.marks: begins at byte 192 of the data; expected 128"},
  };
  for (const auto& c : cases) {
    Write(TestSession(3, 10, 4));
    ChangeHeader(c.change);
    EXPECT_THAT(ErrorOf(), AllOf(StartsWith(path_), HasSubstr(c.expected)));
    EXPECT_FALSE(CheckSnapshot(path_).ok());
  }
}

TEST_F(SnapshotTest, SamplersThatCannotBeAreRefused) {
  const struct {
    std::function<void(SnapshotSampler*)> change;
    std::string expected;
  } cases[] = {
      {[](SnapshotSampler* s) { s->set_temperature(-1); }, "temperature is -1"},
      {[](SnapshotSampler* s) { s->set_top_k(-1); }, "top_k is -1"},
      {[](SnapshotSampler* s) { s->clear_top_p(); }, "top_p is 0"},
      {[](SnapshotSampler* s) { s->set_min_p(5); }, "min_p is 5"},
      {[](SnapshotSampler* s) { s->set_repetition_penalty(std::nan("")); }, "repetition_penalty is nan"},
  };
  for (const auto& c : cases) {
    Write(TestSession(3, 10, 4));
    ChangeHeader([&](SnapshotHeader* h) { c.change(h->mutable_sampler()); });
    EXPECT_THAT(ErrorOf(), AllOf(StartsWith(path_), HasSubstr("snapshot header: sampler: " + c.expected)));
    EXPECT_EQ(CheckSnapshot(path_).code(), absl::StatusCode::kInvalidArgument);
  }
  Session session = TestSession(3, 10, 4);
  session.sampler->options.top_p = 2;
  EXPECT_THAT(std::string(WriteSnapshot(path_, session, TestIdentity()).message()),
              AllOf(StartsWith(path_), HasSubstr("sampler: top_p is 2")));
}

TEST_F(SnapshotTest, NegativeTokensAreRefused) {
  Session session = TestSession(3, 10, 4);
  session.tokens[7] = -5;
  Write(session);
  EXPECT_THAT(ErrorOf(), HasSubstr("section tokens: token 7 is -5; expected at least 0"));
  EXPECT_FALSE(ReadSnapshotTokens(path_).ok());
  EXPECT_FALSE(CheckSnapshot(path_).ok());
}

TEST_F(SnapshotTest, AStateWithNanIsNotWrittenAndItsLayerIsNamed) {
  Session session = TestSession(3, 10, 4);
  Write(session);
  const std::string before = ReadFile(path_).value();
  HostLayer(session.state, 1).anchor_shift[1] = std::nanf("");
  const absl::Status status = WriteSnapshot(path_, session, TestIdentity());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith(path_), HasSubstr("layer 1: state tensor layer.1.anchor_shift: element 1 of 2 is NaN")));
  EXPECT_EQ(ReadFile(path_).value(), before);
  EXPECT_EQ(NumFiles(), 1);
}

TEST_F(SnapshotTest, AFileWithInfinityInItsStateIsRefused) {
  Write(TestSession(3, 10, 4));
  std::string file = ReadFile(path_).value();
  const SnapshotHeader header = ReadSnapshotHeader(path_).value();
  uint64_t length;
  std::memcpy(&length, &file[16], sizeof(length));
  const uint64_t data = (32 + length + 63) / 64 * 64;
  const float infinity = -std::numeric_limits<float>::infinity();
  for (int i = 0; i < header.tensors_size(); ++i) {
    const SnapshotSection& section = header.tensors(i);
    if (section.dtype() != "F32") continue;
    std::string forged = file;
    std::memcpy(&forged[data + section.offset() + section.size() - sizeof(infinity)], &infinity, sizeof(infinity));
    ASSERT_TRUE(WriteFileAtomically(path_, forged).ok());
    ContentHash hash;
    hash.Add(absl::string_view(forged).substr(data + section.offset(), section.size()));
    ChangeHeader([&](SnapshotHeader* h) { h->mutable_tensors(i)->set_hash(hash.Value()); });
    EXPECT_THAT(ErrorOf(), AllOf(StartsWith(path_), HasSubstr("state tensor " + section.name() + ": element ")));
    EXPECT_EQ(CheckSnapshot(path_).code(), absl::StatusCode::kInvalidArgument) << section.name();
  }
}

TEST_F(SnapshotTest, AnotherVersionAndOtherFilesAreNamed) {
  Write(TestSession(3, 10, 4));
  std::string file = ReadFile(path_).value();
  file[8] = 2;
  ASSERT_TRUE(WriteFileAtomically(path_, file).ok());
  EXPECT_THAT(ErrorOf(), HasSubstr("format version 2; expected 1"));
  EXPECT_EQ(ReadSnapshotHeader(path_).status().code(), absl::StatusCode::kUnimplemented);
  ASSERT_TRUE(WriteFileAtomically(path_, "KVMPACK\n and so on").ok());
  EXPECT_THAT(ErrorOf(), HasSubstr("does not begin with KVMSNAP"));
  EXPECT_EQ(ReadSnapshot(path_ + "x", TestIdentity(), FreshSequence()).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SnapshotTest, RefusesASessionWhoseTokensAreNotItsStates) {
  Session session = TestSession(3, 10, 4);
  session.tokens.pop_back();
  const absl::Status status = WriteSnapshot(path_, session, TestIdentity());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a session of 9 tokens; expected the 10"));
  EXPECT_EQ(NumFiles(), 0);
}

TEST_F(SnapshotTest, WhateverFailsTheOldOrTheNewSessionLoads) {
  const Session old_session = TestSession(1, 10, 4);
  const Session new_session = TestSession(2, 20, 9);
  for (const int error : {ENOSPC, EIO}) {
    int call = 0;
    for (;; ++call) {
      Write(old_session);
      const auto operations = std::make_shared<FailingFileOperations>(call, error, /*max_write=*/200);
      const absl::Status status = WriteSnapshot(path_, new_session, TestIdentity(), operations);
      const absl::StatusOr<Session> read = Read();
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(NumFiles(), 1);
      if (operations->failed().empty()) {
        EXPECT_TRUE(status.ok() && AreEqual(*read, new_session));
        break;
      }
      EXPECT_EQ(status.code(), absl::ErrnoToStatusCode(error));
      EXPECT_TRUE(AreEqual(*read, old_session) || AreEqual(*read, new_session)) << operations->failed();
    }
    EXPECT_GT(call, 15);
  }
}

}  // namespace
}  // namespace kvm
