#include "tools/flags/graft_flags.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kvm/base/status_macros.h"
#include "kvm/model/stack/stack_spec.h"
#include "tools/flags/model_flags.h"

namespace kvm {
namespace {

// The two sides of "WHAT=VALUE".
absl::StatusOr<std::pair<std::string, std::string>> SplitPair(const FlagSet& flags, const std::string& flag,
                                                              const std::string& text, const std::string& form) {
  const std::pair<std::string, std::string> sides = absl::StrSplit(text, absl::MaxSplits('=', 1));
  if (!sides.first.empty() && !sides.second.empty()) return sides;
  return flags.Wrong(absl::StrCat("--", flag, "=", text, ": expected ", form));
}

// Opens a checkpoint, each path once.
absl::StatusOr<GraftSource> OpenSource(const std::string& path, Composition* composition, Console& console) {
  auto& checkpoints = composition->checkpoints;
  auto known = std::find_if(checkpoints.begin(), checkpoints.end(),
                            [&](const auto& opened) { return opened->model.path == path; });
  if (known == checkpoints.end()) {
    ASSIGN_OR_RETURN(OpenedModel opened, OpenModelWithNotes(path, console));
    opened.model.path = path;
    checkpoints.push_back(std::make_unique<OpenedModel>(std::move(opened)));
    known = std::prev(checkpoints.end());
  }
  const ModelFolder& model = (*known)->model;
  return GraftSource{path, &model.spec, model.weights.get()};
}

// Gives the layers of every --replace a new mixer.
absl::Status ReplaceLayers(const FlagSet& flags, const StackFlags& stack, const GraftFlags& values, StackSpec* spec,
                           std::vector<int>* replaced) {
  StackFlags mixer_flags = stack;
  mixer_flags.width = spec->width();
  for (const std::string& text : values.replace) {
    ASSIGN_OR_RETURN(const auto sides, SplitPair(flags, "replace", text, "LAYERS=LETTER, such as 3,7=K"));
    const absl::StatusOr<std::vector<int>> layers = ParseLayers(sides.first);
    if (!layers.ok()) return flags.Wrong(absl::StrCat("--replace=", text, ": ", layers.status().message()));
    if (sides.second.size() != 1) {
      return flags.Wrong(absl::StrCat("--replace=", text, ": expected LAYERS=LETTER, such as 3,7=K"));
    }
    ASSIGN_OR_RETURN(const MixerSpec mixer, MixerOfLetter(flags, mixer_flags, sides.second[0]));
    const absl::Status status = ReplaceMixers(*layers, mixer, spec);
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat("--replace=", text, ": ", status.message()));
    replaced->insert(replaced->end(), layers->begin(), layers->end());
  }
  return absl::OkStatus();
}

// The layers whose mixer is in a part of a stack.
std::vector<int> LayersWithMixer(const StackPart& part, const StackSpec& spec) {
  switch (part.kind) {
    case StackPart::Kind::kAll: {
      std::vector<int> all(static_cast<size_t>(spec.layers_size()));
      std::iota(all.begin(), all.end(), 0);
      return all;
    }
    case StackPart::Kind::kLayers:
    case StackPart::Kind::kMixers:
      return part.layers;
    case StackPart::Kind::kEmbedding:
    case StackPart::Kind::kHead:
    case StackPart::Kind::kMlps:
      break;
  }
  return {};
}

}  // namespace

void DefineGraftFlags(FlagSet& flags, GraftFlags* values) {
  flags.String("base", &values->base, "MODEL", "start from this model's stack and weights");
  flags.Strings("replace", &values->replace, "LAYERS=LETTER",
                "with --base: new mixers for layers like 3,7=K; their norms and MLPs stay");
  flags.Strings(
      "graft", &values->graft, "PART=MODEL",
      "take embedding, head, all, whole layers (0-3,7), mixer:LAYERS or mlp:LAYERS (norms and MLP) from a model");
}

absl::StatusOr<Composition> ComposeStack(const FlagSet& flags, const StackFlags& stack, const GraftFlags& values,
                                         Console& console) {
  Composition composition;
  std::vector<Graft> grafts;
  if (values.base.empty()) {
    if (!values.replace.empty()) return flags.Wrong("--replace goes with --base");
    ASSIGN_OR_RETURN(composition.spec, ResolveStack(flags, stack));
  } else {
    if (!stack.spec.empty() || !stack.pattern.empty())
      return flags.Wrong("--base is a stack: give no --spec or --pattern");
    RETURN_IF_ERROR(CheckNoBackboneFlags(flags, "goes with --pattern; --base says it"));
    if (values.replace.empty()) RETURN_IF_ERROR(CheckNoMixerFlags(flags, "goes with --pattern or --replace"));
    ASSIGN_OR_RETURN(const GraftSource base, OpenSource(values.base, &composition, console));
    composition.spec = *base.spec;
    composition.tokenizer_path = composition.checkpoints[0]->model.tokenizer_path;
    grafts.push_back({StackPart(), base});
    RETURN_IF_ERROR(ReplaceLayers(flags, stack, values, &composition.spec, &grafts[0].part.without_mixer));
  }
  for (const std::string& text : values.graft) {
    ASSIGN_OR_RETURN(const auto sides, SplitPair(flags, "graft", text, "PART=MODEL, such as 3,7=kvm-120m"));
    const absl::StatusOr<StackPart> part = ParseStackPart(sides.first);
    if (!part.ok()) return flags.Wrong(absl::StrCat("--graft=", text, ": ", part.status().message()));
    ASSIGN_OR_RETURN(const GraftSource source, OpenSource(sides.second, &composition, console));
    // A base has no opinion on layers that come from elsewhere: these bring their mixer, and those before them, of the
    // base or of an earlier graft, go.
    const std::vector<int> layers = values.base.empty() ? std::vector<int>() : LayersWithMixer(*part, composition.spec);
    if (!layers.empty()) RETURN_IF_ERROR(AdoptMixers(layers, *source.spec, source.name, &composition.spec));
    for (Graft& earlier : grafts) {
      std::vector<int>& gone = earlier.part.without_mixer;
      gone.insert(gone.end(), layers.begin(), layers.end());
    }
    grafts.push_back({*part, source});
  }
  ASSIGN_OR_RETURN(composition.plan, PlanGrafts(composition.spec, grafts));
  return composition;
}

}  // namespace kvm
