// What the store adds to a request: finding a prompt, offering, leasing, and the way to disk and back.

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "glog/logging.h"
#include "kvm/state/host_layer_state.h"
#include "kvm/state/snapshot/snapshot_testing.h"
#include "kvm/state/store/state_store.h"
#include "kvm/state/store/state_store_testing.h"

namespace kvm {
namespace {

constexpr int64_t kPlenty = int64_t{8} << 30;
constexpr int64_t kTokens = 1000;

// A state of about this many bytes after any number of tokens.
StoreModel ModelOf(int64_t state_bytes) {
  StoreModel model = CountingModel();
  model.bytes_at = [state_bytes](int64_t) { return state_bytes + 1000; };
  model.new_sequence = [state_bytes] {
    SequenceState state = FreshSequence();
    HostLayer(state, 0).mixer = CopyOnWrite<MixerState>(std::make_unique<RowsState>(state_bytes / 13, 0.0f));
    return state;
  };
  return model;
}

void TakeTokens(Session& session, int64_t count) {
  for (int64_t i = 0; i < count; ++i) session.tokens.push_back(static_cast<int32_t>(session.tokens.size()));
  SequenceAccess::EndPass(session.state, count);
  session.logits.assign(3, 0.0f);
}

// A prompt of range(0) tokens that is stored, with the snapshots of its beginnings.
void BM_ExactHit(benchmark::State& state) {
  StateStoreOptions options;
  options.memory_budget = kPlenty;
  const auto store = StateStore::Open(options, ModelOf(1000)).value();
  {
    SessionLease lease = store->Create("", {}, state.range(0)).value();
    for (int64_t t = 0; t < state.range(0); t += options.retention.chunk) {
      TakeTokens(lease.session(), options.retention.chunk);
      CHECK(lease.Offer().ok());
    }
  }
  const std::vector<int32_t> prompt = Counting(state.range(0));
  for (auto _ : state) {
    const auto lease = store->Create("", prompt, 0);
    CHECK(lease.ok());
  }
  CHECK_EQ(store->Stats().exact_hits, static_cast<int64_t>(state.iterations()));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_ExactHit)->Arg(1 << 10)->Arg(1 << 15)->Arg(1 << 20);

// A snapshot behind range(0) tokens.
void BM_Offer(benchmark::State& state) {
  StateStoreOptions options;
  options.memory_budget = kPlenty;
  const auto store = StateStore::Open(options, ModelOf(1000)).value();
  SessionLease lease = store->Create("", {}, state.range(0)).value();
  TakeTokens(lease.session(), state.range(0));
  for (auto _ : state) {
    TakeTokens(lease.session(), 1);
    CHECK(lease.Offer().ok());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_Offer)->Arg(1 << 10)->Arg(1 << 15)->Arg(1 << 20);

// A lease that writes to its state, of range(0) bytes: the end before it is kept as a snapshot, so that it is copied.
void BM_LeaseAndChange(benchmark::State& state) {
  StateStoreOptions options;
  options.memory_budget = kPlenty;
  const auto store = StateStore::Open(options, ModelOf(state.range(0))).value();
  { TakeTokens(store->Create("a", {}, kTokens).value().session(), kTokens); }
  for (auto _ : state) {
    SessionLease lease = store->Lease("a", 1).value();
    HostLayer(lease.session().state, 0).mixer.Mutable();
    TakeTokens(lease.session(), 1);
    CHECK(lease.Release().ok());
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_LeaseAndChange)->Arg(2 << 20)->Arg(45 << 20);

// Two sessions of range(0) bytes with room for one: each lease writes one and reads the other.
void BM_MoveOutAndBack(benchmark::State& state) {
  std::string folder = (std::filesystem::temp_directory_path() / "state_storeXXXXXX").string();
  CHECK(mkdtemp(&folder[0]) != nullptr);
  {
    StateStoreOptions options;
    options.folder = folder;
    options.memory_budget = state.range(0) + 100'000;
    options.retention.recent = 0;
    const auto store = StateStore::Open(options, ModelOf(state.range(0))).value();
    for (const char* name : {"0", "1"}) TakeTokens(store->Create(name, {}, 1).value().session(), 1);
    int which = 0;
    for (auto _ : state) {
      SessionLease lease = store->Lease(absl::StrCat(which), 0).value();
      CHECK(lease.Release().ok());
      which = 1 - which;
    }
    state.SetBytesProcessed(2 * state.iterations() * state.range(0));
  }
  std::filesystem::remove_all(folder);
}
BENCHMARK(BM_MoveOutAndBack)->Arg(2 << 20)->Arg(45 << 20)->UseRealTime();

}  // namespace
}  // namespace kvm
