#include "kvm/model/weights/graft.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kvm/base/status_macros.h"
#include "kvm/model/stack/stack_limits.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/parameters.h"
#include "kvm/model/weights/tensor_problems.h"

namespace kvm {
namespace {

constexpr char kLayers[] = "transformer.h.";
constexpr char kEmbedding[] = "transformer.wte.weight";
constexpr char kHead[] = "lm_head.weight";

std::string LayerPrefix(int layer) { return absl::StrCat(kLayers, layer, "."); }
std::string MixerPrefix(int layer) { return LayerPrefix(layer) + "attn."; }

// The layer that a tensor belongs to; −1 for those of none.
int LayerOf(absl::string_view name) {
  int layer = -1;
  if (!absl::ConsumePrefix(&name, kLayers)) return -1;
  return absl::SimpleAtoi(name.substr(0, name.find('.')), &layer) ? layer : -1;
}

bool IsOfMixer(absl::string_view name, int layer) { return layer >= 0 && absl::StartsWith(name, MixerPrefix(layer)); }

bool Contains(const std::vector<int>& layers, int layer) {
  return std::find(layers.begin(), layers.end(), layer) != layers.end();
}

bool BelongsTo(const StackPart& part, absl::string_view name) {
  const int layer = LayerOf(name);
  if (IsOfMixer(name, layer) && Contains(part.without_mixer, layer)) return false;
  switch (part.kind) {
    case StackPart::Kind::kAll:
      return true;
    case StackPart::Kind::kEmbedding:
      return name == kEmbedding || absl::StartsWith(name, "transformer.ln_emb.");
    case StackPart::Kind::kHead:
      return name == kHead || absl::StartsWith(name, "transformer.ln_head.");
    case StackPart::Kind::kLayers:
      return Contains(part.layers, layer);
    case StackPart::Kind::kMixers:
      return Contains(part.layers, layer) && IsOfMixer(name, layer);
    case StackPart::Kind::kMlps:
      return Contains(part.layers, layer) && !IsOfMixer(name, layer);
  }
  return false;
}

// "0-3, 7".
std::string FormatLayers(const std::vector<int>& layers) {
  std::string text;
  for (size_t i = 0; i < layers.size(); ++i) {
    size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ", ", layers[i]);
    if (last > i) absl::StrAppend(&text, "-", layers[last]);
    i = last;
  }
  return text;
}

// "layer 7" or "layers 0-3, 7".
std::string TitleOfLayers(const std::vector<int>& layers) {
  return absl::StrCat(layers.size() == 1 ? "layer " : "layers ", FormatLayers(layers));
}

// Layers of a graft that cannot be taken whatever their tensors are; `broken` gets those.
std::vector<std::string> LayerProblems(const StackSpec& spec, const Graft& graft, const MixerKinds& kinds,
                                       std::set<int>* broken) {
  const StackPart& part = graft.part;
  std::vector<int> layers = part.layers;
  if (part.kind == StackPart::Kind::kAll) {
    for (int i = 0; i < spec.layers_size(); ++i) layers.push_back(i);
  }
  std::map<std::string, std::vector<int>> layers_with;
  for (const int layer : layers) {
    std::string problem;
    if (layer >= spec.layers_size()) {
      problem = absl::StrCat("the stack has ", spec.layers_size(), " layers");
    } else if (layer >= graft.source.spec->layers_size()) {
      problem = absl::StrCat("it has ", graft.source.spec->layers_size(), " layers");
    } else if (part.kind != StackPart::Kind::kMlps && !Contains(part.without_mixer, layer)) {
      const MixerKind& ours = kinds.Of(spec.mixers(MixerIndex(spec, layer)));
      const MixerKind& theirs = kinds.Of(graft.source.spec->mixers(MixerIndex(*graft.source.spec, layer)));
      if (&ours != &theirs) {
        problem = absl::StrCat("its mixer is ", theirs.name, ", the stack's ", ours.name);
      }
    }
    if (problem.empty()) continue;
    broken->insert(layer);
    layers_with[problem].push_back(layer);
  }
  std::vector<std::string> problems;
  for (const auto& [problem, with] : layers_with) {
    problems.push_back(absl::StrCat(graft.source.name, ": ", TitleOfLayers(with), ": ", problem));
  }
  return problems;
}

class GraftedWeights : public WeightSource {
 public:
  GraftedWeights(const StackSpec& spec, const GraftPlan& plan, const WeightSource& fresh, const MixerKinds& kinds) {
    for (const Parameter& parameter : StackParameters(spec, kinds)) {
      const auto origin = plan.origins.find(parameter.name);
      tensors_[parameter.name] = origin == plan.origins.end()
                                     ? std::make_pair(&fresh, parameter.name)
                                     : std::make_pair(plan.sources[origin->second.source].weights, origin->second.name);
    }
  }

  std::string Description() const override { return "grafted weights"; }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& entry : tensors_) names.push_back(entry.first);
    return names;
  }
  const TensorView* Find(absl::string_view name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : found->second.first->Find(found->second.second);
  }
  std::optional<TensorInfo> Info(absl::string_view name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? std::nullopt : found->second.first->Info(found->second.second);
  }
  HeldTensor Read(absl::string_view name) const override {
    const auto& [source, name_there] = tensors_.find(name)->second;
    return source->Read(name_there);
  }
  absl::Status CheckContents(const std::function<bool()>& cancelled) const override {
    std::set<const WeightSource*> checked;
    for (const auto& entry : tensors_) {
      const WeightSource* source = entry.second.first;
      if (checked.insert(source).second) RETURN_IF_ERROR(source->CheckContents(cancelled));
    }
    return absl::OkStatus();
  }

 private:
  // By the stack's name: the source, and the name there.
  std::map<std::string, std::pair<const WeightSource*, std::string>, std::less<>> tensors_;
};

bool HasMixer(const StackSpec& spec, const std::string& name) {
  return std::any_of(spec.mixers().begin(), spec.mixers().end(),
                     [&](const MixerSpec& mixer) { return mixer.name() == name; });
}

// Whether two mixers do the same, whatever they are called.
bool SameMixer(MixerSpec a, MixerSpec b) {
  a.clear_name();
  b.clear_name();
  return a.SerializeAsString() == b.SerializeAsString();
}

void DropUnusedMixers(StackSpec* spec) {
  std::set<std::string> used(spec->layers().begin(), spec->layers().end());
  auto& mixers = *spec->mutable_mixers();
  mixers.erase(std::remove_if(mixers.begin(), mixers.end(),
                              [&](const MixerSpec& mixer) { return used.count(mixer.name()) == 0; }),
               mixers.end());
}

}  // namespace

absl::StatusOr<std::vector<int>> ParseLayers(absl::string_view text) {
  std::set<int> layers;
  for (const absl::string_view range : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(range, absl::MaxSplits('-', 1));
    int first = 0, last = 0;
    bool good = absl::SimpleAtoi(ends.first, &first) && first >= 0;
    last = first;
    if (absl::StrContains(range, '-')) good = good && absl::SimpleAtoi(ends.second, &last);
    if (!good || last < first || last >= kMaxLayers) {
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no list of layers; expected one like 0-3,7"));
    }
    for (int layer = first; layer <= last; ++layer) layers.insert(layer);
  }
  return std::vector<int>(layers.begin(), layers.end());
}

absl::StatusOr<StackPart> ParseStackPart(absl::string_view text) {
  StackPart part;
  if (text == "all") return part;
  part.kind = StackPart::Kind::kEmbedding;
  if (text == "embedding") return part;
  part.kind = StackPart::Kind::kHead;
  if (text == "head") return part;
  part.kind = StackPart::Kind::kLayers;
  absl::string_view layers = text;
  if (absl::ConsumePrefix(&layers, "mixer:")) part.kind = StackPart::Kind::kMixers;
  if (absl::ConsumePrefix(&layers, "mlp:")) part.kind = StackPart::Kind::kMlps;
  absl::StatusOr<std::vector<int>> parsed = ParseLayers(layers);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text,
        "' is no part of a stack; expected all, embedding, head, or layers like 0-3,7, mixer:0-3,7 or mlp:0-3,7"));
  }
  part.layers = *std::move(parsed);
  return part;
}

absl::StatusOr<GraftPlan> PlanGrafts(const StackSpec& spec, absl::Span<const Graft> grafts, const MixerKinds& kinds) {
  const std::vector<Parameter> parameters = StackParameters(spec, kinds);
  GraftPlan plan;
  std::vector<std::string> problems;
  for (const Graft& graft : grafts) {
    plan.sources.push_back(graft.source);
    std::set<int> broken;
    for (std::string& problem : LayerProblems(spec, graft, kinds, &broken)) problems.push_back(std::move(problem));
    TensorProblems tensor_problems(kLayers);
    for (const Parameter& parameter : parameters) {
      if (!BelongsTo(graft.part, parameter.name) || broken.count(LayerOf(parameter.name)) > 0) continue;
      const bool from_tied = parameter.name == kHead && graft.source.spec->tied_head();
      const std::string name = from_tied ? kEmbedding : parameter.name;
      const std::string problem = ProblemOf(graft.source.weights->Info(name), parameter.shape);
      if (problem.empty()) {
        plan.origins[parameter.name] = {static_cast<int>(plan.sources.size()) - 1, name};
      } else {
        tensor_problems.Add(name, problem);
      }
    }
    if (!tensor_problems.empty()) problems.push_back(absl::StrCat(graft.source.name, ": ", tensor_problems.Join()));
  }
  if (problems.empty()) return plan;
  return absl::InvalidArgumentError(absl::StrJoin(problems, "; "));
}

std::unique_ptr<WeightSource> GraftWeights(const StackSpec& spec, const GraftPlan& plan, const WeightSource& fresh,
                                           const MixerKinds& kinds) {
  return std::make_unique<GraftedWeights>(spec, plan, fresh, kinds);
}

std::vector<GraftLine> DescribeGrafts(const StackSpec& spec, const GraftPlan& plan, const std::string& fresh,
                                      const MixerKinds& kinds) {
  const auto origin_of = [&](const std::string& name) {
    const auto origin = plan.origins.find(name);
    return origin == plan.origins.end() ? fresh : plan.sources[origin->second.source].name;
  };
  std::vector<GraftLine> lines = {{"embedding", origin_of(kEmbedding)}};
  // Layers with the same origin share a line, which stands where the first of them does.
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  std::vector<std::string> mixer_origins(spec.layers_size());
  for (const auto& parameter : StackParameters(spec, kinds)) {
    const int layer = LayerOf(parameter.name);
    if (IsOfMixer(parameter.name, layer)) mixer_origins[layer] = origin_of(parameter.name);
  }
  for (int layer = 0; layer < spec.layers_size(); ++layer) {
    const std::string mixer = mixer_origins[layer];
    const std::string rest = origin_of(LayerPrefix(layer) + "mlp.c_fc.weight");
    const std::string origin = mixer == rest ? mixer : absl::StrCat(mixer, " (mixer), ", rest, " (norms and MLP)");
    const auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& entry) { return entry.first == origin; });
    if (group == groups.end()) {
      groups.push_back({origin, {layer}});
    } else {
      group->second.push_back(layer);
    }
  }
  for (const auto& [origin, layers] : groups) {
    lines.push_back({TitleOfLayers(layers), origin});
  }
  if (spec.skip_connections()) lines.push_back({"skip connections", origin_of("transformer.skip_weights")});
  lines.push_back({"head", origin_of(spec.tied_head() ? "transformer.ln_head.weight" : kHead)});
  return lines;
}

absl::Status ReplaceMixers(const std::vector<int>& layers, MixerSpec mixer, StackSpec* spec, const MixerKinds& kinds) {
  const auto same = std::find_if(spec->mixers().begin(), spec->mixers().end(),
                                 [&](const MixerSpec& known) { return SameMixer(known, mixer); });
  std::string name = mixer.name();
  if (same != spec->mixers().end()) {
    name = same->name();
  } else {
    for (int i = 2; HasMixer(*spec, name); ++i) name = absl::StrCat(mixer.name(), i);
    mixer.set_name(name);
    *spec->add_mixers() = std::move(mixer);
  }
  for (const int layer : layers) {
    if (layer >= spec->layers_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer ", layer, ": the stack has ", spec->layers_size(), " layers"));
    }
    *spec->mutable_layers(layer) = name;
  }
  DropUnusedMixers(spec);
  return ValidateStack(*spec, kinds);
}

absl::Status AdoptMixers(const std::vector<int>& layers, const StackSpec& source, const std::string& name,
                         StackSpec* spec, const MixerKinds& kinds) {
  const std::set<int> adopted(layers.begin(), layers.end());
  std::vector<int> lacking;
  for (const int layer : adopted) {
    if (layer >= source.layers_size()) lacking.push_back(layer);
  }
  if (!lacking.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", TitleOfLayers(lacking), ": it has ", source.layers_size(), " layers"));
  }
  if (static_cast<int>(adopted.size()) == spec->layers_size() && *adopted.rbegin() < spec->layers_size()) {
    // Nothing of the old mixers stays, so that the new ones can keep their names and their anchors.
    *spec->mutable_mixers() = source.mixers();
    for (const int layer : adopted) *spec->mutable_layers(layer) = source.layers(layer);
    DropUnusedMixers(spec);
    return ValidateStack(*spec, kinds);
  }
  for (const int layer : adopted) {
    MixerSpec mixer = source.mixers(MixerIndex(source, layer));
    if (mixer.has_value_anchor() && mixer.value_anchor() != mixer.name()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": layer ", layer, ": its mixer has the value anchor of ",
                                                     mixer.value_anchor(), ", which does not come along"));
    }
    mixer.clear_value_anchor();
    RETURN_IF_ERROR(ReplaceMixers({layer}, std::move(mixer), spec, kinds));
  }
  return absl::OkStatus();
}

}  // namespace kvm
