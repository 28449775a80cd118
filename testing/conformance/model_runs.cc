#include "testing/conformance/model_runs.h"

#include <algorithm>
#include <cstring>

#include "kvm/base/status_macros.h"

namespace kvm {
namespace {

// The length of the piece that call number `call` takes of an input with `left` tokens to go.
int64_t PieceLength(const RunInput& input, size_t call, int64_t left) {
  if (input.pieces.empty()) return left;
  return std::min(left, input.pieces[std::min(call, input.pieces.size() - 1)]);
}

int64_t CountDifferentBytes(const NamedTensor& a, const NamedTensor& b) {
  const int64_t longer = std::max({a.tensor.byte_size(), b.tensor.byte_size(), int64_t{1}});
  if (a.name != b.name || a.tensor.dtype() != b.tensor.dtype() || a.tensor.shape() != b.tensor.shape()) return longer;
  const unsigned char* const x = static_cast<const unsigned char*>(a.tensor.bytes());
  const unsigned char* const y = static_cast<const unsigned char*>(b.tensor.bytes());
  int64_t different = 0;
  for (int64_t i = 0; i < a.tensor.byte_size(); ++i) different += x[i] != y[i];
  return different;
}

}  // namespace

absl::StatusOr<std::vector<SequenceRun>> RunInPieces(const LanguageModel& model, absl::Span<const RunInput> inputs,
                                                     ExecutionContext& context) {
  const int64_t vocab = model.vocab_size();
  const int64_t width = model.spec().width();
  std::vector<SequenceRun> runs(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    runs[i].logits.resize(inputs[i].tokens.size() * vocab);
    runs[i].hidden.assign(model.spec().layers_size(), std::vector<float>(inputs[i].tokens.size() * width));
  }
  std::vector<int64_t> done(inputs.size(), 0);
  const auto left = [&](size_t i) { return static_cast<int64_t>(inputs[i].tokens.size()) - done[i]; };
  for (size_t call = 0;; ++call) {
    std::vector<SequenceInput> batch;
    std::vector<size_t> members;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (call > 0 && left(i) == 0) continue;
      const int64_t count = PieceLength(inputs[i], call, left(i));
      batch.push_back({inputs[i].sequence, inputs[i].tokens.subspan(done[i], count),
                       MatrixView<float>(runs[i].logits.data() + done[i] * vocab, count, vocab)});
      members.push_back(i);
    }
    if (batch.empty()) break;
    RETURN_IF_ERROR(model.Extend(
        batch, context, [&](int64_t layer, int64_t sequence, int64_t first_token, MatrixView<const float> x) {
          const size_t i = members[sequence];
          for (int64_t r = 0; r < x.rows; ++r) {
            std::copy_n(x.row(r), width, runs[i].hidden[layer].data() + (done[i] + first_token + r) * width);
          }
        }));
    for (size_t m = 0; m < members.size(); ++m) done[members[m]] += static_cast<int64_t>(batch[m].tokens.size());
  }
  return runs;
}

int64_t CountDifferentBits(absl::Span<const float> a, absl::Span<const float> b) {
  if (a.size() != b.size()) return static_cast<int64_t>(std::max(a.size(), b.size()));
  int64_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) different += std::memcmp(&a[i], &b[i], sizeof(float)) != 0;
  return different;
}

int64_t CountDifferentBits(const SequenceRun& a, const SequenceRun& b) {
  int64_t different = CountDifferentBits(a.logits, b.logits);
  for (size_t layer = 0; layer < a.hidden.size(); ++layer) {
    different += CountDifferentBits(a.hidden[layer], b.hidden[layer]);
  }
  return different;
}

int64_t CountDifferentBits(absl::Span<const NamedTensor> a, absl::Span<const NamedTensor> b) {
  int64_t different = static_cast<int64_t>(std::max(a.size(), b.size()) - std::min(a.size(), b.size()));
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) different += CountDifferentBytes(a[i], b[i]);
  return different;
}

}  // namespace kvm
