#include "kvm/state/store/state_store_testing.h"

#include <stdlib.h>

#include <memory>
#include <numeric>
#include <utility>

#include "gtest/gtest.h"
#include "kvm/state/host_layer_state.h"
#include "kvm/state/snapshot/snapshot_testing.h"

namespace kvm {

StoreModel CountingModel() {
  StoreModel model;
  model.identity = TestIdentity();
  model.new_sequence = [] { return FreshSequence(); };
  model.bytes_at = [](int64_t tokens) { return 13 * tokens + 28; };
  model.vocab_size = 3;
  return model;
}

void Feed(Session& session, absl::Span<const int32_t> tokens) {
  for (int32_t token : tokens) {
    RowsState& state = static_cast<RowsState&>(HostLayer(session.state, 0).mixer.Mutable());
    const float before = state.rows.empty() ? 1.0f : state.rows.back();
    const float mixed = 0.75f * before + static_cast<float>(token);
    const float position = static_cast<float>(session.state.position());
    state.rows.insert(state.rows.end(), {static_cast<float>(token), position, mixed});
    state.marks.push_back(static_cast<int8_t>(token));
    HostLayer(session.state, 0).mlp_shift[0] = mixed;
    SequenceAccess::EndPass(session.state, 1);
    session.tokens.push_back(token);
    session.logits = {mixed, position, static_cast<float>(token)};
  }
}

Session Fed(absl::Span<const int32_t> tokens) {
  Session session;
  session.state = FreshSequence();
  Feed(session, tokens);
  return session;
}

std::vector<int32_t> Counting(int64_t count, int32_t first) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::string NewTestFolder() {
  std::string folder = testing::TempDir() + "/state_storeXXXXXX";
  EXPECT_NE(mkdtemp(&folder[0]), nullptr);
  return folder;
}

StateStoreOptions CountingOptions(int64_t memory_budget, std::string folder) {
  StateStoreOptions options;
  options.folder = std::move(folder);
  options.memory_budget = memory_budget;
  options.retention = {/*chunk=*/8, /*per_doubling=*/4, /*recent=*/4};
  return options;
}

}  // namespace kvm
