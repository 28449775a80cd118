#include "last_logits.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/kernels/tensor.h"
#include "text_file.h"

namespace {

constexpr char kFolder[] = "external/kvm/testing/golden/kvm_sqrt";

// kvm's own build wrote the file (its //testing:golden_bits_test): the same source gives the same bits, with flags of
// another workspace.
TEST(LastLogits, AreThoseOfKvmToTheBit) {
  const auto golden = kvm::SafetensorsFile::Open(std::string(kFolder) + "/golden.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status();
  const kvm::TensorView* ids = (*golden)->Find("input_ids");
  ASSERT_NE(ids, nullptr);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < ids->shape[1]; ++i) {
    int64_t id;
    std::memcpy(&id, static_cast<const char*>(ids->data) + i * sizeof(id), sizeof(id));
    tokens.push_back(static_cast<int32_t>(id));
  }
  const auto logits = LastLogits(kFolder, tokens);
  ASSERT_TRUE(logits.ok()) << logits.status();
  std::string bits;
  for (const float x : *logits) {
    char line[32];
    std::snprintf(line, sizeof(line), "%a\n", static_cast<double>(x));
    bits += line;
  }
  EXPECT_EQ(bits, ReadText("external/kvm/testing/golden/kvm_sqrt/last_logits.txt"));
}

TEST(LastLogits, NamesAFolderThatIsNotThere) {
  const absl::Status status = LastLogits("/nowhere", {1}).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
}

}  // namespace
