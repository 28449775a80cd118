#include "kvm/model/stack/canonical_stack.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "kvm/model/stack/delta_net_spec.h"
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

// Clears every field that is at its default, so that the two ways to say it become one.
void DropDefaults(Message* message) {
  // Their absence means something else than their default.
  constexpr absl::string_view kMeaningful[] = {"window", "decay_lower_bound"};
  const Reflection& reflection = *message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);  // those that are set
  for (const FieldDescriptor* field : fields) {
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (field->is_repeated()) {
      for (int i = 0; is_message && i < reflection.FieldSize(*message, field); ++i) {
        DropDefaults(reflection.MutableRepeatedMessage(message, field, i));
      }
    } else if (is_message) {
      Message* const inner = reflection.MutableMessage(message, field);
      DropDefaults(inner);
      // The member of a oneof says which one it is, even when it says nothing else.
      if (field->real_containing_oneof() == nullptr && inner->ByteSizeLong() == 0) {
        reflection.ClearField(message, field);
      }
    } else if (std::find(std::begin(kMeaningful), std::end(kMeaningful), field->name()) == std::end(kMeaningful) &&
               IsDefault(*message, *field)) {
      reflection.ClearField(message, field);
    }
  }
}

void DropUnusedNumbers(BudgetSpec* budget) {
  if (budget->growth() != BudgetSpec::POWER_LAW) {
    budget->clear_factor();
    budget->clear_exponent();
  }
  if (budget->growth() != BudgetSpec::SATURATION) budget->clear_limit();
  if (budget->growth() == BudgetSpec::FIXED) budget->clear_round_down();
}

// Spec: GatedDeltaNetSpec or KimiDeltaSpec, that of `mixer`.
template <typename Spec>
void SayDeltaNetSizes(const MixerSpec& mixer, int64_t width, Spec* spec) {
  const DeltaNetSpec sizes = ResolveDeltaNet(mixer, width);
  spec->set_num_value_heads(static_cast<int32_t>(sizes.num_value_heads));
  spec->set_qk_head_dim(static_cast<int32_t>(sizes.qk_dim));
  spec->set_v_head_dim(static_cast<int32_t>(sizes.v_dim));
}

}  // namespace

MixerSpec ResolvedMixer(const MixerSpec& mixer, int64_t width) {
  MixerSpec resolved = mixer;
  if (resolved.has_rwkv7()) {
    resolved.mutable_rwkv7()->clear_decay_rank();
    resolved.mutable_rwkv7()->clear_in_context_rate_rank();
    resolved.mutable_rwkv7()->clear_value_rank();
    resolved.mutable_rwkv7()->clear_gate_rank();
  }
  if (resolved.has_gated_delta_net()) SayDeltaNetSizes(mixer, width, resolved.mutable_gated_delta_net());
  if (resolved.has_kimi_delta()) SayDeltaNetSizes(mixer, width, resolved.mutable_kimi_delta());
  if (HasProjections(resolved)) {
    ProjectionSpec& projections = *MutableProjections(&resolved);
    const HeadSizes heads = ResolveHeads(projections, width);
    projections.set_num_kv_heads(static_cast<int32_t>(heads.num_kv_heads));
    projections.set_qk_head_dim(static_cast<int32_t>(heads.qk_dim));
    projections.set_v_head_dim(static_cast<int32_t>(heads.v_dim));
    projections.clear_value_gate_rank();
  }
  if (resolved.has_kvm()) {
    KvmSpec& kvm = *resolved.mutable_kvm();
    if (kvm.has_budget()) DropUnusedNumbers(kvm.mutable_budget());
    for (BudgetSpec& budget : *kvm.mutable_head_budgets()) DropUnusedNumbers(&budget);
  }
  return resolved;
}

StackSpec CanonicalStack(const StackSpec& spec) {
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
      *canonical.add_mixers() = ResolvedMixer(spec.mixers(MixerIndex(spec, i)), spec.width());
      has_rotary = has_rotary || HasProjections(canonical.mixers().at(canonical.mixers_size() - 1));
    }
    *canonical.mutable_layers(i) = new_name(name);
  }
  if (!has_rotary) canonical.clear_rotary_table();
  for (MixerSpec& mixer : *canonical.mutable_mixers()) {
    const bool has_other_anchor =
        HasValueResidual(mixer) && mixer.has_value_anchor() && mixer.value_anchor() != mixer.name();
    if (has_other_anchor) {
      mixer.set_value_anchor(new_name(mixer.value_anchor()));
    } else {
      mixer.clear_value_anchor();
    }
    mixer.set_name(new_name(mixer.name()));
  }
  DropDefaults(&canonical);
  return canonical;
}

}  // namespace kvm
