#include "kvm/model/stack/mixer_kind.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "kvm/base/check.h"

namespace kvm {
namespace {

bool IsWhole(const MixerKind& kind) {
  return kind.name != nullptr && kind.field_number > 0 && kind.check != nullptr && kind.value_width != nullptr &&
         kind.append_parameters != nullptr && kind.state_size != nullptr && kind.token_cost != nullptr &&
         kind.describe != nullptr;
}

}  // namespace

bool IsOfKind(const MixerSpec& mixer, const MixerKind& kind) {
  const google::protobuf::Reflection& reflection = *mixer.GetReflection();
  const google::protobuf::FieldDescriptor* field = MixerSpec::descriptor()->FindFieldByNumber(kind.field_number);
  if (field == nullptr) field = reflection.FindKnownExtensionByNumber(kind.field_number);
  return field != nullptr && reflection.HasField(mixer, field);
}

MixerKinds::MixerKinds(std::vector<const MixerKind*> kinds) : kinds_(std::move(kinds)) {
  std::set<std::string> names;
  std::set<int> numbers;
  for (const MixerKind* kind : kinds_) {
    Check(IsWhole(*kind), "a mixer kind with everything that each kind has");
    Check(names.insert(kind->name).second && numbers.insert(kind->field_number).second,
          "mixer kinds of different names and field numbers");
  }
}

MixerKinds MixerKinds::With(const MixerKind& kind) const {
  std::vector<const MixerKind*> kinds = kinds_;
  kinds.push_back(&kind);
  return MixerKinds(std::move(kinds));
}

const MixerKind* MixerKinds::Find(const MixerSpec& mixer) const {
  const auto found =
      std::find_if(kinds_.begin(), kinds_.end(), [&](const MixerKind* kind) { return IsOfKind(mixer, *kind); });
  return found == kinds_.end() ? nullptr : *found;
}

const MixerKind& MixerKinds::Of(const MixerSpec& mixer) const {
  const MixerKind* kind = Find(mixer);
  Check(kind != nullptr, "a mixer of one of the given kinds");
  return *kind;
}

std::string MixerKinds::Names() const {
  std::vector<const MixerKind*> sorted = kinds_;
  std::sort(sorted.begin(), sorted.end(),
            [](const MixerKind* a, const MixerKind* b) { return a->field_number < b->field_number; });
  return absl::StrJoin(sorted, ", ", [](std::string* out, const MixerKind* kind) { out->append(kind->name); });
}

}  // namespace kvm
