// A snapshot: whatever is accepted has a state of the size that its sections have, and can go on.

#include <cstdint>

#include "absl/status/statusor.h"
#include "glog/logging.h"
#include "kvm/model/generator.h"
#include "kvm/model/language_model.h"
#include "kvm/state/snapshot/session.h"
#include "kvm/state/snapshot/snapshot.h"
#include "testing/fuzz/memory_file.h"
#include "testing/fuzz/memory_limit.h"
#include "testing/fuzz/snapshot_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Made once: it is the same for all inputs.
  static const kvm::LanguageModel& model = *kvm::NewSnapshotModel().release();
  static kvm::ExecutionContext& context = *new kvm::ExecutionContext(1);
  const kvm::MemoryFile file(data, size);
  // Two bytes of a header can be an entry of a hundred in memory, which is then looked up by its name.
  const kvm::MemoryLimit limit((size_t{8} << 20) + 400 * size);
  const absl::StatusOr<kvm::SnapshotHeader> header = kvm::ReadSnapshotHeader(file.path());
  const bool has_tokens = kvm::ReadSnapshotTokens(file.path()).ok();
  const bool is_intact = kvm::CheckSnapshot(file.path()).ok();
  absl::StatusOr<kvm::Session> session =
      kvm::ReadSnapshot(file.path(), kvm::SnapshotModelIdentity(), model.NewSequence());
  CHECK(header.ok() || (!has_tokens && !is_intact && !session.ok()));
  if (!session.ok()) return 0;
  CHECK(has_tokens && is_intact);
  int64_t bytes = 0;
  for (const kvm::SnapshotSection& tensor : header->tensors()) bytes += static_cast<int64_t>(tensor.size());
  CHECK_EQ(session->state.ByteSize(), bytes);
  CHECK_EQ(session->state.position(), static_cast<int64_t>(session->tokens.size()));
  const int32_t prompt[] = {1, 2, 3, 4, 5};
  kvm::GeneratorOptions options;
  options.max_tokens = 2;
  // Tokens or logits that are not the model's are refused here; numbers that are none are drawn from where they can be.
  static_cast<void>(kvm::Generate(model, *session, prompt, options, context, [](int32_t) { return true; }));
  return 0;
}
