#include "kvm/model/stack/stack_spec.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "kvm/base/status_macros.h"
#include "kvm/model/stack/stack_limits.h"
#include "kvm/model/stack/stack_problems.h"

namespace kvm {
namespace {

// Keeps the first error; later ones are mostly its consequences.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!message_.empty()) return;
    message_ = line < 0 ? absl::StrCat(" ", message) : absl::StrCat(line + 1, ":", column + 1, ": ", message);
    // Of the number's type. What fields may be ends long before that.
    if (absl::StartsWith(message, "Integer out of range")) {
      absl::StrAppend(&message_, "; expected a whole number of at most ", kMaxSpecSize);
    }
  }
  void AddWarning(int, int, const std::string&) override {}

  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

}  // namespace

absl::StatusOr<StackSpec> ParseStackSpec(absl::string_view text, const std::string& source, const MixerKinds& kinds) {
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  StackSpec spec;
  if (!parser.ParseFromString(std::string(text), &spec)) {
    return absl::InvalidArgumentError(absl::StrCat(source, ":", error.message()));
  }
  const absl::Status status = ValidateStack(spec, kinds);
  if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat(source, ": ", status.message()));
  return spec;
}

std::string FormatStackSpec(const StackSpec& spec) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(spec, &text);
  return text;
}

absl::Status ValidateStack(const StackSpec& spec, const MixerKinds& kinds) {
  size_t count = 0;
  const std::vector<StackProblem> problems = FindStackProblems(spec, &count, kinds);
  if (problems.empty()) return absl::OkStatus();
  std::string message;
  for (const StackProblem& problem : problems) {
    absl::StrAppend(&message, message.empty() ? "" : "; ", problem.path, ": got ", problem.got, ", expected ",
                    problem.expected);
  }
  if (count > problems.size()) absl::StrAppend(&message, "; and ", count - problems.size(), " more");
  return absl::InvalidArgumentError(message);
}

int MixerIndex(const StackSpec& spec, int layer) {
  for (int i = 0; i < spec.mixers_size(); ++i) {
    if (spec.mixers(i).name() == spec.layers(layer)) return i;
  }
  return -1;
}

bool HasValueResidual(const MixerSpec& mixer, const MixerKinds& kinds) {
  const MixerKind& kind = kinds.Of(mixer);
  return kind.has_value_residual != nullptr && kind.has_value_residual(mixer);
}

int AnchorLayer(const StackSpec& spec, int layer, const MixerKinds& kinds) {
  const MixerSpec& mixer = spec.mixers(MixerIndex(spec, layer));
  if (!HasValueResidual(mixer, kinds)) return -1;
  const std::string& anchor = mixer.has_value_anchor() ? mixer.value_anchor() : mixer.name();
  return static_cast<int>(std::find(spec.layers().begin(), spec.layers().end(), anchor) - spec.layers().begin());
}

int64_t MlpWidth(const StackSpec& spec) { return static_cast<int64_t>(spec.mlp_expansion() * spec.width()) / 32 * 32; }

bool HasProjections(const MixerSpec& mixer, const MixerKinds& kinds) { return kinds.Of(mixer).projections != nullptr; }

const ProjectionSpec& Projections(const MixerSpec& mixer, const MixerKinds& kinds) {
  return kinds.Of(mixer).projections(mixer);
}

int64_t ValueWidth(const MixerSpec& mixer, int64_t width, const MixerKinds& kinds) {
  return kinds.Of(mixer).value_width(mixer, width);
}

}  // namespace kvm
