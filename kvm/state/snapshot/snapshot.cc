#include "kvm/state/snapshot/snapshot.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/state/snapshot/snapshot_layout.h"
#include "kvm/state/state_fields.h"

namespace kvm {
namespace {

absl::string_view BytesOf(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

absl::Status CheckIdentity(const SnapshotModel& made_by, const ModelIdentity& model, const std::string& path) {
  const auto differ = [&](absl::string_view what, absl::string_view theirs, absl::string_view ours) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": the snapshot is of ", what, " ", Printable(theirs),
                                                      ", the loaded model is of ", ours,
                                                      "; a state goes on only with what it was computed with"));
  };
  if (made_by.fingerprint() != model.fingerprint) {
    return differ("another model: fingerprint", absl::StrCat(absl::Hex(made_by.fingerprint(), absl::kZeroPad16)),
                  absl::StrCat(absl::Hex(model.fingerprint, absl::kZeroPad16)));
  }
  if (made_by.weights() != Name(model.weights)) {
    return differ("weights", made_by.weights(), Name(model.weights));
  }
  if (made_by.state() != Name(model.state)) return differ("state dtype", made_by.state(), Name(model.state));
  const auto option = [&](absl::string_view what, bool theirs, bool ours) {
    if (theirs == ours) return absl::OkStatus();
    return differ("a model", absl::StrCat(theirs ? "with " : "without ", what),
                  absl::StrCat(ours ? "one with " : "one without ", what));
  };
  RETURN_IF_ERROR(option("chunked recurrences", made_by.chunked_recurrences(), model.chunked_recurrences));
  return option("provenance", made_by.provenance(), model.provenance);
}

absl::StatusOr<std::vector<int32_t>> TokensOf(const SnapshotLayout& layout, absl::string_view file,
                                              const std::string& path) {
  std::vector<int32_t> tokens;
  if (!layout.header.has_tokens()) return tokens;
  const TensorView view = ViewOf(layout.header.tokens(), layout, file);
  tokens.resize(static_cast<size_t>(view.num_elements()));
  std::memcpy(tokens.data(), view.data, static_cast<size_t>(view.byte_size()));
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": snapshot section tokens: token ", i, " is ", tokens[i], "; expected at least 0"));
  }
  return tokens;
}

absl::Status RestoreState(const SnapshotLayout& layout, absl::string_view file, const std::string& path,
                          ThreadPool* pool, SequenceState* state) {
  StateFields fields;
  for (const SnapshotNumber& number : layout.header.numbers()) {
    fields.numbers.push_back({number.name(), number.value()});
  }
  for (const SnapshotSection& tensor : layout.header.tensors()) {
    fields.tensors.push_back({tensor.name(), ViewOf(tensor, layout, file)});
  }
  const StateReader reader(fields);
  absl::Status restored = state->Restore(reader, pool);
  if (restored.ok()) restored = reader.Finish();
  if (!restored.ok()) return absl::Status(restored.code(), absl::StrCat(path, ": ", restored.message()));
  if (state->position() == layout.header.position()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": snapshot header: position ", layout.header.position(),
                                                 "; expected ", state->position(), ", the state's own"));
}

}  // namespace

absl::StatusOr<Session> ReadSnapshot(const std::string& path, const ModelIdentity& identity, SequenceState fresh,
                                     ThreadPool* pool) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const absl::string_view bytes = BytesOf(file);
  ASSIGN_OR_RETURN(const SnapshotLayout layout, ParseSnapshot(bytes, path));
  RETURN_IF_ERROR(CheckIdentity(layout.header.model(), identity, path));
  RETURN_IF_ERROR(CheckData(layout, bytes, path, pool));
  Session session;
  ASSIGN_OR_RETURN(session.tokens, TokensOf(layout, bytes, path));
  if (layout.header.has_logits()) session.logits = ReadFloats(ViewOf(layout.header.logits(), layout, bytes));
  if (layout.header.has_sampler()) session.sampler = ToSamplerState(layout.header.sampler());
  RETURN_IF_ERROR(RestoreState(layout, bytes, path, pool, &fresh));
  session.state = std::move(fresh);
  return session;
}

absl::StatusOr<SnapshotHeader> ReadSnapshotHeader(const std::string& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(SnapshotLayout layout, ParseSnapshot(BytesOf(file), path));
  return std::move(layout.header);
}

absl::Status CheckSnapshotModel(const SnapshotHeader& header, const ModelIdentity& identity, const std::string& path) {
  return CheckIdentity(header.model(), identity, path);
}

absl::StatusOr<std::vector<int32_t>> ReadSnapshotTokens(const std::string& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(const SnapshotLayout layout, ParseSnapshot(BytesOf(file), path));
  if (layout.header.has_tokens()) {
    RETURN_IF_ERROR(CheckSection(layout.header.tokens(), layout, BytesOf(file), path));
  }
  return TokensOf(layout, BytesOf(file), path);
}

absl::StatusOr<std::vector<int32_t>> ReadSnapshotInts(const std::string& path, absl::string_view name) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(const SnapshotLayout layout, ParseSnapshot(BytesOf(file), path));
  for (const SnapshotSection& section : layout.header.tensors()) {
    if (section.name() != name || section.dtype() != Name(DType::kI32)) continue;
    RETURN_IF_ERROR(CheckSection(section, layout, BytesOf(file), path));
    const TensorView view = ViewOf(section, layout, BytesOf(file));
    std::vector<int32_t> values(static_cast<size_t>(view.num_elements()));
    std::memcpy(values.data(), view.data, static_cast<size_t>(view.byte_size()));
    return values;
  }
  return absl::NotFoundError(absl::StrCat(path, ": no tensor ", Printable(name), " of I32"));
}

absl::Status CheckSnapshot(const std::string& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(const SnapshotLayout layout, ParseSnapshot(BytesOf(file), path));
  RETURN_IF_ERROR(CheckData(layout, BytesOf(file), path, /*pool=*/nullptr));
  return TokensOf(layout, BytesOf(file), path).status();
}

}  // namespace kvm
