#include "kvm/io/huggingface/main_and_alt.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "kvm/base/status_macros.h"
#include "kvm/model/stack/canonical_stack.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

// Sets every field that is absent to its default, so that the text shows it; but not the sizes whose absence means
// something else than their default: `meaningful` ones.
void ShowDefaults(absl::Span<const absl::string_view> meaningful, google::protobuf::Message* message) {
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  const google::protobuf::Descriptor& descriptor = *message->GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = descriptor.field(i);
    if (field->is_repeated()) {
      if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
      for (int j = 0; j < reflection.FieldSize(*message, field); ++j) {
        ShowDefaults(meaningful, reflection.MutableRepeatedMessage(message, field, j));
      }
      continue;
    }
    if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
      // A member of a oneof that is not set stays so.
      if (field->real_containing_oneof() == nullptr || reflection.HasField(*message, field)) {
        ShowDefaults(meaningful, reflection.MutableMessage(message, field));
      }
      continue;
    }
    if (reflection.HasField(*message, field)) continue;
    if (std::find(meaningful.begin(), meaningful.end(), field->name()) != meaningful.end()) continue;
    switch (field->cpp_type()) {
      case google::protobuf::FieldDescriptor::CPPTYPE_INT32:
        reflection.SetInt32(message, field, field->default_value_int32());
        break;
      case google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE:
        reflection.SetDouble(message, field, field->default_value_double());
        break;
      case google::protobuf::FieldDescriptor::CPPTYPE_BOOL:
        reflection.SetBool(message, field, field->default_value_bool());
        break;
      case google::protobuf::FieldDescriptor::CPPTYPE_ENUM:
        reflection.SetEnum(message, field, field->default_value_enum());
        break;
      default:
        break;
    }
  }
}

}  // namespace

absl::StatusOr<MainAndAlt> FindMainAndAlt(const StackSpec& spec) {
  std::vector<std::string> used;
  for (const std::string& name : spec.layers()) {
    if (std::find(used.begin(), used.end(), name) == used.end()) used.push_back(name);
  }
  MainAndAlt roles;
  roles.main = MixerIndex(spec, 0);
  if (used.size() == 1) return roles;
  const auto refuse = [](const std::string& why) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.json cannot express this stack: it knows one main mixer, and an alternative one in layers "
                     "0, n, 2n, ...; ",
                     why));
  };
  if (used.size() > 2) return refuse(absl::StrCat("here are ", used.size(), ": ", absl::StrJoin(used, ", ")));
  // The alternative one has layer 0; the layer in which it comes again says n.
  roles.alt = std::exchange(roles.main, MixerIndex(spec, 1));
  roles.alt_every = 1;
  while (roles.alt_every < spec.layers_size() && spec.layers(roles.alt_every) != used[0]) ++roles.alt_every;
  for (int i = 0; i < spec.layers_size(); ++i) {
    if (roles.alt_every > 1 && (i % roles.alt_every == 0) == (spec.layers(i) == used[0])) continue;
    return refuse(absl::StrCat("here ", used[0], " has layer 0, so that ", used[1],
                               " would have to be the main one, and ", "layer ", std::max(i, 1), " is of ",
                               spec.layers(std::max(i, 1))));
  }
  return roles;
}

absl::StatusOr<std::string> MainAndAltText(const StackSpec& original) {
  ASSIGN_OR_RETURN(const MainAndAlt roles, FindMainAndAlt(original));
  StackSpec spec = original;
  spec.clear_mixers();
  const auto rename = [&](const std::string& name) {
    return name == original.mixers(roles.main).name() ? std::string("main") : std::string("alt");
  };
  for (const int index : {roles.main, roles.alt}) {
    if (index < 0) continue;
    MixerSpec& mixer = *spec.add_mixers();
    mixer = ResolvedMixer(original.mixers(index), spec.width());
    mixer.set_name(rename(mixer.name()));
    if (mixer.has_value_anchor()) {
      const std::string anchor = rename(mixer.value_anchor());
      mixer.clear_value_anchor();
      if (anchor != mixer.name()) mixer.set_value_anchor(anchor);
    }
  }
  for (std::string& layer : *spec.mutable_layers()) layer = rename(layer);
  std::set<absl::string_view> meaningful = {"value_anchor"};
  for (const MixerSpec& mixer : spec.mixers()) {
    const MixerKind& kind = BuiltinMixerKinds().Of(mixer);
    meaningful.insert(kind.meaningful_fields.begin(), kind.meaningful_fields.end());
  }
  ShowDefaults(std::vector<absl::string_view>(meaningful.begin(), meaningful.end()), &spec);
  return FormatStackSpec(spec);
}

}  // namespace kvm
