#include "testing/golden_layer_check.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/model/mixers/delta_net_state.h"
#include "testing/conformance/model_runs.h"
#include "testing/golden_file.h"

namespace kvm {
namespace {

// All sequences after one way of feeding them.
struct LayerRun {
  std::vector<float> y;                             // [B, T, D]
  std::vector<std::unique_ptr<MixerState>> states;  // [B]
};

// The tensors of a state and what they are in every sequence together: [B, ...].
using StateTensors = std::map<std::string, std::vector<float>>;

struct LayerContext {
  GoldenFile golden;
  const GoldenLayer& layer;
  const GoldenOptions& options;
  StateTensors initial;  // empty for zero states
  GoldenReport report;

  GoldenLine* NewLine(const std::string& quantity, double tolerance) {
    report.lines.push_back({quantity, 0, tolerance, ""});
    return &report.lines.back();
  }
};

// "state." or "initial_" followed by a name of `exported`, from the file.
absl::StatusOr<StateTensors> ReadState(const std::string& prefix, const std::vector<NamedTensor>& exported,
                                       GoldenFile* golden) {
  StateTensors tensors;
  for (const NamedTensor& t : exported) {
    Shape shape = t.tensor.shape();
    shape.insert(shape.begin(), golden->batch());
    ASSIGN_OR_RETURN(tensors[t.name], golden->Floats(prefix + t.name, shape));
  }
  return tensors;
}

std::unique_ptr<MixerState> InitialState(const LayerContext& context, int64_t sequence) {
  std::unique_ptr<MixerState> state = context.layer.mixer->NewState();
  DeltaNetState& delta = static_cast<DeltaNetState&>(*state);
  const auto part = [&](const std::string& name) -> absl::Span<const float> {
    const std::vector<float>& all = context.initial.at(name);
    const size_t size = all.size() / static_cast<size_t>(context.golden.batch());
    return {all.data() + sequence * size, size};
  };
  for (const auto& [name, values] : context.initial) {
    if (name == "recurrent") std::copy_n(part(name).begin(), part(name).size(), delta.recurrent.floats().begin());
    if (name == "conv_q") delta.conv_q.Import(part(name));
    if (name == "conv_k") delta.conv_k.Import(part(name));
    if (name == "conv_v") delta.conv_v.Import(part(name));
  }
  return state;
}

// Feeds pieces of the given lengths, the last of which repeats; empty: all at once. All sequences go into each call, or
// one sequence after the other.
LayerRun Run(const LayerContext& context, const std::vector<int64_t>& pieces, bool batched, int num_threads) {
  const GoldenFile& golden = context.golden;
  const int64_t batch = golden.batch(), length = golden.length(), width = context.layer.width;
  ExecutionContext execution(num_threads);
  LayerRun run;
  run.y.resize(golden.x().size());
  for (int64_t b = 0; b < batch; ++b) run.states.push_back(InitialState(context, b));

  const int64_t group = batched ? batch : 1;  // sequences a call
  for (int64_t first = 0; first < batch; first += group) {
    size_t call = 0;
    for (int64_t done = 0, count; done < length; done += count, ++call) {
      count = pieces.empty() ? length : std::min(length - done, pieces[std::min(call, pieces.size() - 1)]);
      std::vector<float> x(group * count * width), y(x.size());
      std::vector<SequenceRows> rows;
      for (int64_t s = 0; s < group; ++s) {
        std::copy_n(golden.x().data() + ((first + s) * length + done) * width, count * width,
                    x.data() + s * count * width);
        rows.push_back({s * count, count, done, run.states[first + s].get()});
      }
      context.layer.mixer->Extend({x.data(), group * count, width}, {}, rows, {y.data(), group * count, width},
                                  execution);
      for (int64_t s = 0; s < group; ++s) {
        std::copy_n(y.data() + s * count * width, count * width, run.y.data() + ((first + s) * length + done) * width);
      }
    }
  }
  return run;
}

void CompareOutputs(const std::string& quantity, const std::vector<float>& expected, const LayerRun& run,
                    LayerContext& context) {
  const Shape shape = {context.golden.batch(), context.golden.length(), context.layer.width};
  AddErrors(expected, run.y, shape, 1, "y", context.NewLine(quantity, context.options.layer_tolerance));
}

absl::Status CheckState(const LayerRun& run, LayerContext& context) {
  ASSIGN_OR_RETURN(const StateTensors expected, ReadState("state.", run.states[0]->Export(), &context.golden));
  StateTensors got;
  std::map<std::string, Shape> shapes;
  for (const std::unique_ptr<MixerState>& state : run.states) {
    for (const NamedTensor& t : state->Export()) {
      const absl::Span<const float> values = t.tensor.floats();
      got[t.name].insert(got[t.name].end(), values.begin(), values.end());
      shapes[t.name] = t.tensor.shape();
      shapes[t.name].insert(shapes[t.name].begin(), context.golden.batch());
    }
  }
  for (const auto& [name, values] : expected) {
    AddErrors(values, got.at(name), shapes.at(name), 1, name,
              context.NewLine("state " + name, context.options.layer_tolerance));
  }
  return absl::OkStatus();
}

// How a batch was fed must change no bit of it.
void CheckSameBits(const std::string& how, const LayerRun& whole, const LayerRun& other, LayerContext& context) {
  const int64_t outputs = CountDifferentBits(whole.y, other.y);
  int64_t state = 0;
  for (size_t b = 0; b < whole.states.size(); ++b) {
    state += CountDifferentBits(whole.states[b]->Export(), other.states[b]->Export());
  }
  AddError(static_cast<double>(outputs + state), absl::StrCat(outputs, " outputs, ", state, " bytes of state"),
           context.NewLine("values with other bits, " + how, 0));
}

}  // namespace

absl::StatusOr<GoldenReport> CheckGoldenLayer(const std::string& folder, const GoldenOptions& options) {
  ASSIGN_OR_RETURN(const GoldenLayer layer, OpenGoldenLayer(folder, options.model.weights));
  ASSIGN_OR_RETURN(GoldenFile golden, GoldenFile::OpenLayer(folder + "/golden.safetensors", layer.width));
  LayerContext context = {std::move(golden), layer, options, {}, {folder, {}}};
  const std::vector<std::string> names = context.golden.Names();
  const bool has_initial =
      std::any_of(names.begin(), names.end(), [](const std::string& name) { return name.rfind("initial_", 0) == 0; });
  if (has_initial) {
    ASSIGN_OR_RETURN(context.initial, ReadState("initial_", layer.mixer->NewState()->Export(), &context.golden));
  }
  const Shape shape = {context.golden.batch(), context.golden.length(), layer.width};
  ASSIGN_OR_RETURN(const std::vector<float> y, context.golden.Floats("y", shape));
  ASSIGN_OR_RETURN(const std::vector<float> y_stepwise, context.golden.Floats("y_stepwise", shape));
  if (context.golden.Has("loss_weights")) context.golden.Use("loss_weights");

  const int threads = options.num_threads;
  const std::vector<int64_t> steps = {context.golden.prefill_len(), 1};
  const LayerRun whole = Run(context, {}, true, threads);
  const LayerRun decoded = Run(context, steps, true, threads);
  CompareOutputs("y, whole sequence", y, whole, context);
  CompareOutputs("y, prefill and single steps", y_stepwise, decoded, context);
  RETURN_IF_ERROR(CheckState(whole, context));
  CheckSameBits("prefill and single steps", whole, decoded, context);
  CheckSameBits("single steps", whole, Run(context, {1}, true, threads), context);
  CheckSameBits("pieces of 7", whole, Run(context, {7}, true, threads), context);
  CheckSameBits("sequences apart", whole, Run(context, {}, false, threads), context);
  CheckSameBits("one thread", whole, Run(context, {}, true, 1), context);
  RETURN_IF_ERROR(context.golden.CheckAllUsed());
  return std::move(context.report);
}

}  // namespace kvm
