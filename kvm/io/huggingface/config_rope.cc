#include "kvm/io/huggingface/config_rope.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

using Json = nlohmann::json;

constexpr char kTheta[] = "rope_theta";

// A number that an object holds; nothing where it is no object or holds none.
std::optional<double> NumberIn(const Json* object, const char* key) {
  if (object == nullptr || !object->is_object()) return std::nullopt;
  const auto found = object->find(key);
  if (found == object->end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// What a field of the objects may be; "" when it is that.
std::string Expected(const std::string& field, const Json& value, double theta, const StackSpec* spec) {
  if (value.is_null() || field == "original_max_position_embeddings") return "";
  if (field == "rope_type" || field == "type") return value == "default" ? "" : "\"default\": no scaling is supported";
  if (field == "factor" || field == "attention_factor") return value == 1 ? "" : "1: no scaling is supported";
  if (field == kTheta) {
    if (!value.is_number()) return "a number";
    return value == theta ? "" : absl::StrCat(theta, ", which is said elsewhere");
  }
  if (field == "partial_rotary_factor") {
    if (spec == nullptr) return "";
    constexpr double kTolerance = 1e-6;
    const std::optional<double> factor = PartialRotaryFactor(*spec);
    if (!factor.has_value()) return "null, as no layer of this stack has rotary channels";
    if (value.is_number() && std::abs(value.get<double>() - *factor) <= kTolerance) return "";
    return absl::StrCat(*factor, ", which is what rope_partial_dim and the heads' sizes say");
  }
  return "null: it is not supported";
}

}  // namespace

double ReadRopeTheta(double default_theta, JsonFields* fields) {
  for (const char* key : {kRopeParametersKey, kRopeScalingKey}) {
    default_theta = NumberIn(fields->Find(key), kTheta).value_or(default_theta);
    if (NumberIn(fields->Find(key), kTheta).has_value()) break;
  }
  return fields->Number(kTheta, default_theta);
}

void CheckRope(const StackSpec* spec, JsonFields* fields) {
  const double theta = ReadRopeTheta(0, fields);
  for (const char* key : {kRopeParametersKey, kRopeScalingKey}) {
    const Json* const object = fields->Find(key);
    if (object == nullptr) continue;
    if (!object->is_object()) {
      fields->AddProblem(key, "an object");
      continue;
    }
    constexpr size_t kMostFields = 20;
    if (object->size() > kMostFields) {
      fields->AddProblem(key, absl::StrCat("an object of at most ", kMostFields, " fields"));
      continue;
    }
    for (const auto& [field, value] : object->items()) {
      const std::string expected = Expected(field, value, theta, spec);
      if (!expected.empty()) fields->AddProblem(absl::StrCat(key, ".", field), ShortJson(value), expected);
    }
  }
}

std::optional<double> PartialRotaryFactor(const StackSpec& spec) {
  for (const MixerSpec& mixer : spec.mixers()) {
    if (!HasProjections(mixer)) continue;
    const ProjectionSpec& projections = Projections(mixer);
    return static_cast<double>(projections.rotary_dim()) /
           static_cast<double>(ResolveHeads(projections, spec.width()).qk_dim);
  }
  return std::nullopt;
}

}  // namespace kvm
