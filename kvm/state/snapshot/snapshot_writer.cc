#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/content_hash.h"
#include "kvm/base/status_macros.h"
#include "kvm/kernels/dtype.h"
#include "kvm/state/finite_tensors.h"
#include "kvm/state/snapshot/sampler_state.h"
#include "kvm/state/snapshot/snapshot.h"
#include "kvm/state/snapshot/snapshot_layout.h"
#include "kvm/state/state_fields.h"

namespace kvm {
namespace {

absl::string_view BytesOf(const TensorView& tensor) {
  return {static_cast<const char*>(tensor.data), static_cast<size_t>(tensor.byte_size())};
}

uint64_t HashOf(absl::string_view bytes) {
  ContentHash hash;
  hash.Add(bytes);
  return hash.Value();
}

std::string LittleEndian(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return bytes;
}

std::string Padding(uint64_t position) { return std::string(AlignSnapshot(position) - position, '\0'); }

// What a file holds behind its header, in that order: borrowed from the session.
std::vector<StateTensor> SectionsOf(const Session& session, const StateFields& fields) {
  std::vector<StateTensor> sections;
  const auto add = [&](const char* name, DType dtype, size_t count, const void* data) {
    if (count > 0) sections.push_back({name, {dtype, {static_cast<int64_t>(count)}, data}});
  };
  add("tokens", DType::kI32, session.tokens.size(), session.tokens.data());
  add("logits", DType::kF32, session.logits.size(), session.logits.data());
  sections.insert(sections.end(), fields.tensors.begin(), fields.tensors.end());
  return sections;
}

void FillSection(const StateTensor& tensor, uint64_t offset, SnapshotSection* section) {
  section->set_name(tensor.name);
  section->set_dtype(std::string(Name(tensor.view.dtype)));
  for (const int64_t extent : tensor.view.shape) section->add_shape(extent);
  section->set_offset(offset);
  section->set_size(static_cast<uint64_t>(tensor.view.byte_size()));
  section->set_hash(HashOf(BytesOf(tensor.view)));
}

void FillSampler(const SamplerState& state, SnapshotSampler* sampler) {
  sampler->set_temperature(state.options.temperature);
  sampler->set_top_k(state.options.top_k);
  sampler->set_top_p(state.options.top_p);
  sampler->set_min_p(state.options.min_p);
  sampler->set_repetition_penalty(state.options.repetition_penalty);
  sampler->set_seed(state.options.seed);
  sampler->set_draws(state.draws);
}

void FillLayer(const LayerState& state, SnapshotLayer* layer) {
  const StateCoverage coverage = state.Coverage();
  layer->set_bytes(state.SavedByteSize());
  layer->set_rows(state.NumRows());
  layer->set_rows_begin(coverage.rows.begin);
  layer->set_rows_end(coverage.rows.end);
  layer->set_window_begin(coverage.window.begin);
  layer->set_window_end(coverage.window.end);
}

void FillModel(const ModelIdentity& identity, SnapshotModel* model) {
  model->set_fingerprint(identity.fingerprint);
  model->set_weights(Name(identity.weights));
  model->set_state(std::string(Name(identity.state)));
  model->set_chunked_recurrences(identity.chunked_recurrences);
  model->set_stack(identity.stack);
  model->set_provenance(identity.provenance);
}

SnapshotHeader HeaderOf(const Session& session, const ModelIdentity& identity, const StateFields& fields,
                        const std::vector<StateTensor>& sections) {
  SnapshotHeader header;
  FillModel(identity, header.mutable_model());
  header.set_position(session.state.position());
  if (session.sampler.has_value()) FillSampler(*session.sampler, header.mutable_sampler());
  for (const StateNumber& number : fields.numbers) {
    SnapshotNumber* const entry = header.add_numbers();
    entry->set_name(number.name);
    entry->set_value(number.value);
  }
  uint64_t offset = 0;
  const size_t first_tensor = sections.size() - fields.tensors.size();
  for (size_t i = 0; i < sections.size(); ++i) {
    SnapshotSection* const entry = i >= first_tensor              ? header.add_tensors()
                                   : sections[i].name == "tokens" ? header.mutable_tokens()
                                                                  : header.mutable_logits();
    FillSection(sections[i], offset, entry);
    offset = AlignSnapshot(offset + entry->size());
  }
  for (int64_t i = 0; i < session.state.num_layers(); ++i) FillLayer(session.state.layer(i), header.add_layers());
  return header;
}

}  // namespace

absl::Status WriteSnapshot(const std::string& path, const Session& session, const ModelIdentity& identity,
                           std::shared_ptr<FileOperations> operations) {
  if (static_cast<int64_t>(session.tokens.size()) != session.state.position()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": a session of ", session.tokens.size(),
                                                   " tokens; expected the ", session.state.position(),
                                                   " that its state has taken in"));
  }
  if (session.sampler.has_value()) {
    const absl::Status valid = ValidateSamplerOptions(session.sampler->options);
    if (!valid.ok())
      return absl::InvalidArgumentError(absl::StrCat(path, ": the session's sampler: ", valid.message()));
  }
  StateFields fields;
  if (const absl::Status saved = session.state.Save(StateWriter(&fields)); !saved.ok()) {
    return absl::Status(saved.code(), absl::StrCat(path, ": ", saved.message()));
  }
  for (const StateTensor& tensor : fields.tensors) {
    const absl::Status finite = CheckFinite(tensor);
    if (finite.ok()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", finite.message(), "; such a state is not kept, the model's weights may be broken"));
  }
  const std::vector<StateTensor> sections = SectionsOf(session, fields);
  const std::string header = HeaderOf(session, identity, fields, sections).SerializeAsString();
  if (header.size() > kMaxSnapshotHeader) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a header of ", header.size(), " bytes; a snapshot holds at most ", kMaxSnapshotHeader));
  }
  ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path, std::move(operations)));
  RETURN_IF_ERROR(file.Append(absl::StrCat(kSnapshotMagic, LittleEndian(kSnapshotVersion), LittleEndian(header.size()),
                                           LittleEndian(HashOf(header)), header)));
  uint64_t end = kSnapshotFrame + header.size();
  for (const StateTensor& section : sections) {
    RETURN_IF_ERROR(file.Append(Padding(end)));
    RETURN_IF_ERROR(file.Append(BytesOf(section.view)));
    end = AlignSnapshot(end) + static_cast<uint64_t>(section.view.byte_size());
  }
  return file.Commit();
}

}  // namespace kvm
