// Writes the seeds of the snapshot fuzzer: snapshot_seeds FOLDER.

#include <cstdint>
#include <string>

#include "glog/logging.h"
#include "kvm/model/generator.h"
#include "kvm/state/snapshot/session.h"
#include "kvm/state/snapshot/snapshot.h"
#include "testing/fuzz/snapshot_model.h"

int main(int argc, char** argv) {
  CHECK_EQ(argc, 2) << "expected a folder";
  const auto model = kvm::NewSnapshotModel();
  kvm::ExecutionContext context(1);
  for (const int tokens : {0, 3, 5, 30}) {
    kvm::Session session;
    session.state = model->NewSequence();
    const int32_t prompt[] = {1};
    kvm::GeneratorOptions options;
    options.sampler.emplace();
    options.max_tokens = tokens - 1;
    if (tokens > 0) {
      const auto stats = kvm::Generate(*model, session, prompt, options, context, [](int32_t) { return true; });
      CHECK(stats.ok()) << stats.status();
    }
    const std::string path = std::string(argv[1]) + "/tokens_" + std::to_string(tokens);
    const absl::Status written = kvm::WriteSnapshot(path, session, kvm::SnapshotModelIdentity());
    CHECK(written.ok()) << written;
  }
  return 0;
}
