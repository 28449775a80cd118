// What a golden model says, to the bit: testing/golden/kvm_sqrt/last_logits.txt, which testing/consumer compares as
// well.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/model_folder.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/language_model.h"
#include "kvm/state/sequence_state.h"

namespace kvm {
namespace {

constexpr char kFolder[] = "testing/golden/kvm_sqrt";

// Kernels round otherwise where there is no fused multiply-add, and on machines of another kind the file was not made.
bool HasTheInstructions() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
#else
  return false;
#endif
}

TEST(GoldenBits, LastLogits) {
  if (!HasTheInstructions()) GTEST_SKIP() << "not a processor of x86-64 with AVX2";
  const auto golden = SafetensorsFile::Open(std::string(kFolder) + "/golden.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status();
  const TensorView* ids = (*golden)->Find("input_ids");
  ASSERT_NE(ids, nullptr);
  ASSERT_EQ(ids->dtype, DType::kI64);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < ids->shape[1]; ++i) {
    int64_t id;
    std::memcpy(&id, static_cast<const char*>(ids->data) + i * sizeof(id), sizeof(id));
    tokens.push_back(static_cast<int32_t>(id));
  }

  const auto folder = OpenModelFolder(kFolder);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto model = LanguageModel::Create(folder->spec, *folder->weights, {});
  ASSERT_TRUE(model.ok()) << model.status();
  ExecutionContext context(1);
  SequenceState sequence = (*model)->NewSequence();
  std::vector<float> logits((*model)->vocab_size());
  const absl::Status extended =
      (*model)->Extend({{&sequence, tokens, {logits.data(), 1, (*model)->vocab_size()}}}, context);
  ASSERT_TRUE(extended.ok()) << extended;

  std::string bits;
  for (const float x : logits) {
    char line[32];
    std::snprintf(line, sizeof(line), "%a\n", static_cast<double>(x));
    bits += line;
  }
  const auto expected = ReadFile(std::string(kFolder) + "/last_logits.txt");
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(bits, *expected);
}

}  // namespace
}  // namespace kvm
