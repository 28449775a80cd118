// Saving and restoring a session beside plain files of as many bytes.

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "glog/logging.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/content_hash.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/state/copy_on_write.h"
#include "kvm/state/host_layer_state.h"
#include "kvm/state/mixer_state.h"
#include "kvm/state/sequence_state.h"
#include "kvm/state/snapshot/snapshot.h"
#include "kvm/state/snapshot/snapshot_testing.h"

namespace kvm {
namespace {

// $TEST_TMPDIR or /tmp: the disk that is measured.
std::string BenchmarkFile(const char* name) {
  const char* const folder = std::getenv("TEST_TMPDIR");
  return absl::StrCat(folder == nullptr ? "/tmp" : folder, "/kvm_benchmark_", getpid(), "_", name);
}

Session SessionOfMegabytes(int64_t megabytes) { return TestSession(1, 1000, (megabytes << 20) / 13); }

void SetBytes(benchmark::State& state, int64_t bytes) {
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["megabytes"] = static_cast<double>(bytes) * 0x1p-20;
}

void BM_WriteSnapshot(benchmark::State& state) {
  const std::string path = BenchmarkFile("snapshot");
  const Session session = SessionOfMegabytes(state.range(0));
  for (auto _ : state) CHECK(WriteSnapshot(path, session, TestIdentity()).ok());
  SetBytes(state, session.ByteSize());
  unlink(path.c_str());
}

// The same bytes in one write, then fsync.
void BM_PlainWrite(benchmark::State& state) {
  const std::string path = BenchmarkFile("plain");
  const std::string bytes(static_cast<size_t>(SessionOfMegabytes(state.range(0)).ByteSize()), 'x');
  for (auto _ : state) {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t count = write(fd, bytes.data() + at, bytes.size() - at);
      PCHECK(count > 0);
      at += static_cast<size_t>(count);
    }
    PCHECK(fsync(fd) == 0 && close(fd) == 0);
  }
  SetBytes(state, static_cast<int64_t>(bytes.size()));
  unlink(path.c_str());
}

void BM_ReadSnapshot(benchmark::State& state) {
  const std::string path = BenchmarkFile("snapshot");
  const Session session = SessionOfMegabytes(state.range(0));
  CHECK(WriteSnapshot(path, session, TestIdentity()).ok());
  for (auto _ : state) CHECK(ReadSnapshot(path, TestIdentity(), FreshSequence()).ok());
  SetBytes(state, session.ByteSize());
  unlink(path.c_str());
}

// A sequence of as many layers as models have, which threads share.
SequenceState SequenceOfLayers(int64_t rows) {
  std::vector<HostLayerState> layers(24);
  for (HostLayerState& layer : layers) {
    layer.mixer =
        CopyOnWrite<MixerState>(std::make_unique<RowsState>(rows / static_cast<int64_t>(layers.size()), 0.0f));
  }
  return NewHostSequence(/*stack_id=*/42, std::move(layers));
}

// Megabytes, threads.
void BM_ReadSnapshotOnThreads(benchmark::State& state) {
  const std::string path = BenchmarkFile("layers");
  Session session = TestSession(1, 1000, 0);
  session.state = SequenceOfLayers((state.range(0) << 20) / 13);
  SequenceAccess::EndPass(session.state, 1000);
  CHECK(WriteSnapshot(path, session, TestIdentity()).ok());
  ThreadPool pool(static_cast<int>(state.range(1)));
  for (auto _ : state) CHECK(ReadSnapshot(path, TestIdentity(), SequenceOfLayers(0), &pool).ok());
  SetBytes(state, session.ByteSize());
  unlink(path.c_str());
}

void BM_ReadSnapshotHeader(benchmark::State& state) {
  const std::string path = BenchmarkFile("snapshot");
  CHECK(WriteSnapshot(path, SessionOfMegabytes(state.range(0)), TestIdentity()).ok());
  for (auto _ : state) CHECK(ReadSnapshotHeader(path).ok());
  unlink(path.c_str());
}

// The same bytes into memory that is there, from the system's cache as above.
void BM_PlainRead(benchmark::State& state) {
  const std::string path = BenchmarkFile("plain");
  std::vector<char> bytes(static_cast<size_t>(SessionOfMegabytes(state.range(0)).ByteSize()), 'x');
  CHECK(WriteFileAtomically(path, {bytes.data(), bytes.size()}).ok());
  for (auto _ : state) {
    const int fd = open(path.c_str(), O_RDONLY);
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t count = read(fd, bytes.data() + at, bytes.size() - at);
      PCHECK(count > 0);
      at += static_cast<size_t>(count);
    }
    close(fd);
  }
  SetBytes(state, static_cast<int64_t>(bytes.size()));
  unlink(path.c_str());
}

void BM_ContentHash(benchmark::State& state) {
  const std::string bytes(static_cast<size_t>(state.range(0)) << 20, 'x');
  for (auto _ : state) {
    ContentHash hash;
    hash.Add(bytes);
    benchmark::DoNotOptimize(hash.Value());
  }
  SetBytes(state, static_cast<int64_t>(bytes.size()));
}

BENCHMARK(BM_WriteSnapshot)->Arg(1)->Arg(64)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_PlainWrite)->Arg(1)->Arg(64)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ReadSnapshot)->Arg(1)->Arg(64)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ReadSnapshotOnThreads)->ArgsProduct({{64, 512}, {1, 2}})->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_PlainRead)->Arg(1)->Arg(64)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ReadSnapshotHeader)->Arg(64)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_ContentHash)->Arg(64)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvm
