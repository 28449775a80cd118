#include "kvm/model/stack/stack_problems.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "kvm/model/stack/stack_checker.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

constexpr double kMaxParameters = 1099511627776.0;  // 2^40

// What a name of a mixer could have been. All names at the first mistake alone: with many mistakes and many mixers the
// message would be their product.
class KnownMixers {
 public:
  explicit KnownMixers(const StackSpec& spec) : spec_(spec) {}

  std::string Expected() {
    if (spec_.mixers().empty()) return "the name of a mixer, of which there are none";
    if (std::exchange(listed_, true)) return "the name of a mixer";
    std::vector<std::string> names;
    for (const MixerSpec& mixer : spec_.mixers()) names.push_back(QuotedName(mixer.name()));
    return absl::StrCat("the name of a mixer: ", absl::StrJoin(names, ", "));
  }

 private:
  const StackSpec& spec_;
  bool listed_ = false;
};

// One of the kinds, whose fields are sound.
void CheckKind(const MixerSpec& mixer, int64_t width, const std::string& path, const MixerKinds& kinds,
               StackChecker* check) {
  const MixerKind* kind = kinds.Find(mixer);
  if (kind == nullptr) {
    check->Add(path, "no kind", absl::StrCat("one of ", kinds.Names()));
    return;
  }
  // A kind of another package does not exclude the others, as they do each other.
  std::vector<std::string> names;
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  mixer.GetReflection()->ListFields(mixer, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field->is_extension() || field->real_containing_oneof() != nullptr) names.push_back(field->name());
  }
  if (names.size() > 1) {
    check->Add(path, absl::StrJoin(names, " and "), "one kind");
    return;
  }
  kind->check(mixer, width, absl::StrCat(path, ".", kind->name), check);
}

// Every mixer has a name of its own and a sound kind.
void CheckMixers(const StackSpec& spec, const MixerKinds& kinds, StackChecker* check) {
  std::set<std::string> names;
  for (int i = 0; i < spec.mixers_size(); ++i) {
    const MixerSpec& mixer = spec.mixers(i);
    const std::string path = absl::StrCat("mixers[", i, "]");
    if (mixer.name().empty()) {
      check->Add(absl::StrCat(path, ".name"), "nothing", "a name");
    } else if (!names.insert(mixer.name()).second) {
      check->Add(absl::StrCat(path, ".name"), QuotedName(mixer.name()), "a name that no other mixer has");
    }
    CheckKind(mixer, spec.width(), path, kinds, check);
  }
}

void CheckLayers(const StackSpec& spec, StackChecker* check) {
  if (spec.layers_size() < 1 || spec.layers_size() > kMaxLayers) {
    check->Add("layers", absl::StrCat(spec.layers_size(), " layers"), absl::StrCat("1 to ", kMaxLayers, " layers"));
    return;
  }
  KnownMixers known(spec);
  for (int i = 0; i < spec.layers_size(); ++i) {
    if (MixerIndex(spec, i) < 0) {
      check->Add(absl::StrCat("layers[", i, "]"), QuotedName(spec.layers(i)), known.Expected());
    }
  }
}

// Sound mixers and layers given: anchors that exist and whose values are as wide as those that they are mixed with.
void CheckAnchors(const StackSpec& spec, const MixerKinds& kinds, StackChecker* check) {
  const std::set<std::string> used(spec.layers().begin(), spec.layers().end());
  KnownMixers known(spec);
  for (int i = 0; i < spec.mixers_size(); ++i) {
    const MixerSpec& mixer = spec.mixers(i);
    if (!mixer.has_value_anchor()) continue;
    const std::string path = absl::StrCat("mixers[", i, "].value_anchor");
    const MixerSpec* anchor = nullptr;
    for (const MixerSpec& other : spec.mixers()) {
      if (other.name() == mixer.value_anchor()) anchor = &other;
    }
    if (anchor == nullptr) {
      check->Add(path, QuotedName(mixer.value_anchor()), known.Expected());
      continue;
    }
    if (used.count(mixer.name()) == 0 || !HasValueResidual(mixer, kinds)) continue;
    const int64_t wanted = ValueWidth(mixer, spec.width(), kinds);
    const int64_t offered = ValueWidth(*anchor, spec.width(), kinds);
    if (used.count(anchor->name()) == 0) {
      check->Add(path, QuotedName(mixer.value_anchor()), "a mixer that a layer uses");
    } else if (offered != wanted) {
      check->Add(
          path, absl::StrCat(QuotedName(mixer.value_anchor()), " with values of ", offered, " channels"),
          absl::StrCat("a mixer whose values have ", wanted, " channels, as those of ", QuotedName(mixer.name())));
    }
  }
}

// In floating point, so that nothing overflows.
double NumMatrixElements(const MixerSpec& mixer, const StackSpec& spec, const MixerKinds& kinds) {
  std::vector<Parameter> parameters;
  kinds.Of(mixer).append_parameters(mixer, {0, spec.layers_size(), spec.width()}, "", &parameters);
  double elements = 0;
  for (const Parameter& parameter : parameters) {
    if (parameter.shape.size() != 2) continue;
    elements += static_cast<double>(parameter.shape[0]) * static_cast<double>(parameter.shape[1]);
  }
  return elements;
}

// About as many parameters as the spec has: its matrices.
double NumMatrixElements(const StackSpec& spec, const MixerKinds& kinds) {
  const double width = spec.width();
  std::vector<double> of_mixer;
  for (const MixerSpec& mixer : spec.mixers()) of_mixer.push_back(NumMatrixElements(mixer, spec, kinds));
  double elements = 2.0 * spec.vocab_size() * width;
  for (int i = 0; i < spec.layers_size(); ++i) {
    elements += 2.0 * width * static_cast<double>(MlpWidth(spec)) + of_mixer[static_cast<size_t>(MixerIndex(spec, i))];
  }
  return elements;
}

void CheckStack(const StackSpec& spec, const MixerKinds& kinds, StackChecker* check) {
  check->Whole("vocab_size", spec.vocab_size(), 1);
  const bool width_known = check->Whole("width", spec.width(), 1);
  CheckMixers(spec, kinds, check);
  CheckLayers(spec, check);
  if (width_known && check->Above("mlp_expansion", spec.mlp_expansion(), 0, static_cast<double>(kMaxSpecSize)) &&
      (MlpWidth(spec) < 32 || MlpWidth(spec) > kMaxSpecSize)) {
    check->Add("mlp_expansion", NumberText(spec.mlp_expansion()),
               absl::StrCat("a number that makes the MLP ", 32, " to ", kMaxSpecSize, " wide; the stack's width is ",
                            spec.width()));
  }
  if (spec.skip_connections() && spec.layers_size() % 2 != 0) {
    check->Add("skip_connections", "true", absl::StrCat("an even number of layers, not ", spec.layers_size()));
  }
  // Bounds in which float32 has room left for what is multiplied. Written so that NaN is refused.
  if (!(std::abs(spec.residual_scale()) <= 1e6)) {
    check->Add("residual_scale", NumberText(spec.residual_scale()), "a number from -1000000 to 1000000");
  }
  if (!(spec.logit_softcap() == 0 || (spec.logit_softcap() >= 1e-6 && spec.logit_softcap() <= 1e6))) {
    check->Add("logit_softcap", NumberText(spec.logit_softcap()), "0 (off) or a number from 0.000001 to 1000000");
  }
  if (check->count() != 0) return;
  CheckAnchors(spec, kinds, check);
  const double elements = NumMatrixElements(spec, kinds);
  if (elements > kMaxParameters) {
    check->Add("layers", absl::StrCat("a stack of ", elements, " parameters"),
               absl::StrCat("at most ", NumberText(kMaxParameters), " parameters"));
  }
}

}  // namespace

std::vector<StackProblem> FindStackProblems(const StackSpec& spec, size_t* count, const MixerKinds& kinds) {
  StackChecker check;
  CheckStack(spec, kinds, &check);
  if (count != nullptr) *count = check.count();
  return check.Take();
}

}  // namespace kvm
