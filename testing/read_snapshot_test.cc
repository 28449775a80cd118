// A reader that was written after docs/formats/snapshot.md alone finds in snapshots what the sessions have.

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/content_hash.h"
#include "kvm/kernels/dtype.h"
#include "kvm/model/language_model.h"
#include "kvm/state/mixer_state.h"
#include "kvm/state/sequence_state.h"
#include "kvm/state/snapshot/sampler_state.h"
#include "kvm/state/snapshot/session.h"
#include "kvm/state/snapshot/snapshot.h"
#include "kvm/state/state_fields.h"
#include "testing/conformance/random_weights.h"
#include "testing/conformance/test_stacks.h"

namespace kvm {
namespace {

std::string OutputOf(const std::string& command) {
  std::string output;
  FILE* const pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (const size_t count = fread(buffer, 1, sizeof(buffer), pipe)) output.append(buffer, count);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return output;
}

// What the reader prints of a tensor, but for its first elements.
std::string Line(const std::string& name, const TensorView& tensor) {
  ContentHash hash;
  hash.Add({static_cast<const char*>(tensor.data), static_cast<size_t>(tensor.byte_size())});
  return absl::StrCat(name, " ", Name(tensor.dtype), " ", ToString(tensor.shape), " ",
                      absl::Hex(hash.Value(), absl::kZeroPad16));
}

// What the reader prints of a layer.
std::string LayerLine(const LayerState& layer) {
  const StateCoverage covers = layer.Coverage();
  return absl::StrCat("layer ", layer.SavedByteSize(), " ", layer.NumRows(), " ", covers.rows.begin, " ",
                      covers.rows.end, " ", covers.window.begin, " ", covers.window.end);
}

// The line without its elements.
std::string WithoutElements(const std::string& line) {
  const size_t shape_end = line.find(']');
  return shape_end == std::string::npos ? line : line.substr(0, shape_end + 2 + 16);
}

TEST(ReadSnapshotTest, PythonReadsWhatSaveSays) {
  const std::string path = testing::TempDir() + "/read.kvmstate";
  const std::string command = absl::StrCat("python3 testing/read_snapshot.py ", path);
  std::set<std::string> dtypes;
  for (const TestStack& stack : TestStacks()) {
    ModelOptions options;
    options.state = dtypes.count("I8") == 0 ? DType::kI8 : DType::kF32;
    const auto weights = RandomWeights(stack.spec, stack.seed);
    const auto model = LanguageModel::Create(stack.spec, *weights, options).value();
    Session session;
    session.state = model->NewSequence();
    session.tokens = TestTokens(stack.spec, 21, 5);
    session.logits.resize(static_cast<size_t>(model->vocab_size()));
    ExecutionContext context(1);
    const MatrixView<float> logits(session.logits.data(), 1, model->vocab_size());
    ASSERT_TRUE(model->Extend({{&session.state, session.tokens, logits}}, context).ok());
    session.sampler = SamplerState{{0.5, 40, 0.75, 0.125, 1.5, ~uint64_t{0}}, 300};
    ASSERT_TRUE(WriteSnapshot(path, session, {0xabc, WeightType::kAsStored, options.state, false, "spec", true}).ok());

    std::vector<std::string> expected = {
        "fingerprint 0000000000000abc position 21",
        absl::StrCat("model as-is ", Name(options.state), " 0 1 spec"),
        "sampler 0.5 0.75 0.125 1.5 18446744073709551615 40 300",
    };
    for (int64_t i = 0; i < session.state.num_layers(); ++i) expected.push_back(LayerLine(session.state.layer(i)));
    StateFields fields;
    EXPECT_TRUE(session.state.Save(StateWriter(&fields)).ok());
    for (const StateNumber& number : fields.numbers) expected.push_back(absl::StrCat(number.name, " ", number.value));
    expected.push_back(Line("tokens", {DType::kI32, {21}, session.tokens.data()}));
    expected.push_back(Line("logits", {DType::kF32, {model->vocab_size()}, session.logits.data()}));
    for (const StateTensor& tensor : fields.tensors) {
      expected.push_back(Line(tensor.name, tensor.view));
      dtypes.insert(std::string(Name(tensor.view.dtype)));
    }
    std::vector<std::string> lines = absl::StrSplit(OutputOf(command), '\n', absl::SkipEmpty());
    const auto first_elements = [&](const std::string& name) {
      for (const std::string& line : lines) {
        if (line.rfind(name + " ", 0) == 0) return line.substr(WithoutElements(line).size() + 1);
      }
      return std::string();
    };
    EXPECT_EQ(first_elements("tokens"), absl::StrJoin(session.tokens.begin(), session.tokens.begin() + 4, " "));
    EXPECT_NEAR(std::atof(first_elements("logits").c_str()), session.logits[0], 1e-6);
    for (std::string& line : lines) line = WithoutElements(line);
    EXPECT_EQ(lines, expected) << stack.name;
  }
  EXPECT_THAT(dtypes, ::testing::IsSupersetOf({"F32", "I8", "BF16"}));
}

}  // namespace
}  // namespace kvm
