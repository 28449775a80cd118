#include "kvm/model/stack/canonical_stack.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

bool IsDefault(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetInt32(message, &field) == field.default_value_int32();
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.GetDouble(message, &field) == field.default_value_double();
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) == field.default_value_bool();
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.GetEnum(message, &field) == field.default_value_enum();
    default:
      return false;
  }
}

// Clears every field that is at its default, so that the two ways to say it become one. The absence of `meaningful`
// fields means something else than their default.
void DropDefaults(absl::Span<const absl::string_view> meaningful, Message* message) {
  const Reflection& reflection = *message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);  // those that are set
  for (const FieldDescriptor* field : fields) {
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (field->is_repeated()) {
      for (int i = 0; is_message && i < reflection.FieldSize(*message, field); ++i) {
        DropDefaults(meaningful, reflection.MutableRepeatedMessage(message, field, i));
      }
    } else if (is_message) {
      Message* const inner = reflection.MutableMessage(message, field);
      DropDefaults(meaningful, inner);
      // The member of a oneof or an extension says which one it is, even when it says nothing else.
      if (field->real_containing_oneof() == nullptr && !field->is_extension() && inner->ByteSizeLong() == 0) {
        reflection.ClearField(message, field);
      }
    } else if (std::find(meaningful.begin(), meaningful.end(), field->name()) == meaningful.end() &&
               IsDefault(*message, *field)) {
      reflection.ClearField(message, field);
    }
  }
}

}  // namespace

MixerSpec ResolvedMixer(const MixerSpec& mixer, int64_t width, const MixerKinds& kinds) {
  MixerSpec resolved = mixer;
  const MixerKind& kind = kinds.Of(mixer);
  if (kind.resolve != nullptr) kind.resolve(width, &resolved);
  return resolved;
}

StackSpec CanonicalStack(const StackSpec& spec, const MixerKinds& kinds) {
  std::vector<std::string> used;  // names; what stands at i becomes "i"
  const auto new_name = [&](const std::string& name) {
    return absl::StrCat(std::find(used.begin(), used.end(), name) - used.begin());
  };
  StackSpec canonical = spec;
  canonical.clear_mixers();
  canonical.clear_mlp_expansion();
  bool has_rotary = false;
  for (int i = 0; i < spec.layers_size(); ++i) {
    const std::string& name = spec.layers(i);
    if (std::find(used.begin(), used.end(), name) == used.end()) {
      used.push_back(name);
      *canonical.add_mixers() = ResolvedMixer(spec.mixers(MixerIndex(spec, i)), spec.width(), kinds);
      has_rotary = has_rotary || HasProjections(canonical.mixers().at(canonical.mixers_size() - 1), kinds);
    }
    *canonical.mutable_layers(i) = new_name(name);
  }
  if (!has_rotary) canonical.clear_rotary_table();
  for (MixerSpec& mixer : *canonical.mutable_mixers()) {
    const bool has_other_anchor =
        HasValueResidual(mixer, kinds) && mixer.has_value_anchor() && mixer.value_anchor() != mixer.name();
    if (has_other_anchor) {
      mixer.set_value_anchor(new_name(mixer.value_anchor()));
    } else {
      mixer.clear_value_anchor();
    }
    mixer.set_name(new_name(mixer.name()));
    DropDefaults(kinds.Of(mixer).meaningful_fields, &mixer);
  }
  google::protobuf::RepeatedPtrField<MixerSpec> mixers;
  mixers.Swap(canonical.mutable_mixers());
  DropDefaults({}, &canonical);
  mixers.Swap(canonical.mutable_mixers());
  return canonical;
}

}  // namespace kvm
