#include "kvm/io/tensors/packed_file.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/content_hash.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/tensors/cast_weights.h"
#include "kvm/io/tensors/model_fingerprint.h"
#include "kvm/io/tensors/packed.pb.h"
#include "kvm/model/weights/quantized_weights.h"
#include "testing/conformance/random_weights.h"
#include "testing/conformance/test_stacks.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string LittleEndian(uint64_t value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

class PackedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              absl::StrCat("packed_", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    stack_ = TestStacks()[0];
    weights_ = RandomWeights(stack_.spec, stack_.seed);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  // A well-formed file, taken apart.
  struct Parts {
    PackedHeader header;
    std::string data;
  };
  Parts MakeParts() const {
    EXPECT_TRUE(WritePackedModel(Path("good"), stack_.spec, *weights_, {}).ok());
    const std::string bytes = *ReadFile(Path("good"));
    uint64_t length;
    std::memcpy(&length, bytes.data() + 8, sizeof(length));
    Parts parts;
    EXPECT_TRUE(parts.header.ParseFromString(bytes.substr(24, length)));
    parts.data = bytes.substr((24 + length + 63) / 64 * 64);
    return parts;
  }

  std::string Refusal(const std::string& bytes) const {
    EXPECT_TRUE(WriteFileAtomically(Path("bad"), bytes).ok());
    const absl::StatusOr<PackedModel> model = OpenPackedModel(Path("bad"));
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << model.status();
    EXPECT_THAT(std::string(model.status().message()), HasSubstr(Path("bad")));
    return std::string(model.status().message());
  }

  // The same after a change to a good file.
  std::string Refusal(const std::function<void(PackedHeader*)>& change) const {
    Parts parts = MakeParts();
    change(&parts.header);
    return Refusal(Whole(parts));
  }

  // The file of a header and data, with lengths and hashes that are right.
  static std::string Whole(const Parts& parts) {
    const std::string header = parts.header.SerializeAsString();
    ContentHash hash;
    hash.Add(header);
    std::string bytes = absl::StrCat("KVMPACK\n", LittleEndian(header.size()), LittleEndian(hash.Value()), header);
    bytes.resize((bytes.size() + 63) / 64 * 64);
    return bytes + parts.data;
  }

  fs::path folder_;
  TestStack stack_;
  std::unique_ptr<WeightSource> weights_;
};

TEST_F(PackedFileTest, TensorsComeBackToTheBit) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto cast = CastWeights(*weights_, dtype);
    ASSERT_TRUE(cast.ok()) << cast.status();
    const std::string path = Path(absl::StrCat("m", static_cast<int>(dtype)));
    ASSERT_TRUE(WritePackedModel(path, stack_.spec, **cast, {{"a", "1"}}).ok());
    const absl::StatusOr<PackedModel> model = OpenPackedModel(path);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->spec.SerializeAsString(), stack_.spec.SerializeAsString());
    EXPECT_EQ(model->config.at("a"), "1");
    EXPECT_EQ(model->fingerprint, ModelFingerprint(stack_.spec, **cast));
    EXPECT_EQ(ModelFingerprint(model->spec, *model->weights), model->fingerprint);
    EXPECT_EQ(model->weights->Names(), (*cast)->Names());
    for (const std::string& name : (*cast)->Names()) {
      const TensorView& wanted = *(*cast)->Find(name);
      const std::optional<TensorInfo> info = model->weights->Info(name);
      ASSERT_TRUE(info.has_value()) << name;
      EXPECT_EQ(info->shape, wanted.shape) << name;
      const TensorView& got = *model->weights->Find(name);
      ASSERT_EQ(got.dtype, wanted.dtype) << name;
      ASSERT_EQ(got.shape, wanted.shape) << name;
      EXPECT_EQ(std::memcmp(got.data, wanted.data, static_cast<size_t>(wanted.byte_size())), 0) << name;
    }
  }
}

TEST_F(PackedFileTest, PanelsAreAligned) {
  ASSERT_TRUE(WritePackedModel(Path("m"), stack_.spec, *weights_, {}).ok());
  const absl::StatusOr<PackedModel> model = OpenPackedModel(Path("m"));
  ASSERT_TRUE(model.ok()) << model.status();
  const PanelsView* panels = model->weights->FindPanels("lm_head.weight");
  ASSERT_NE(panels, nullptr);
  EXPECT_EQ(panels->outputs, 50);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(panels->data) % 64, 0u);
  EXPECT_EQ(model->weights->FindPanels("transformer.wte.weight"), nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(model->weights->Find("transformer.wte.weight")->data) % 64, 0u);
}

TEST_F(PackedFileTest, RefusesWhatIsNone) {
  EXPECT_EQ(OpenPackedModel(Path("absent")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Refusal(std::string()), HasSubstr("does not begin with KVMPACK"));
  EXPECT_THAT(Refusal(std::string("GGUF")), HasSubstr("it looks like a GGUF file"));
  EXPECT_THAT(Refusal(std::string("KVMPACK\n")), HasSubstr("the file is cut short: it has 8 bytes"));
  EXPECT_THAT(Refusal(std::string("KVMPACK")),
              HasSubstr("the file is cut short: it has 7 bytes; expected at least 24"));
  const std::string zero = LittleEndian(0);
  EXPECT_THAT(Refusal("KVMPACK\n" + LittleEndian(1) + zero),
              HasSubstr("the file is cut short: a header of 1 bytes and only 0 bytes for it"));
  EXPECT_THAT(Refusal("KVMPACK\n" + LittleEndian(~uint64_t{0}) + zero), HasSubstr("a header of 18446744073709551615"));
  EXPECT_THAT(Refusal("KVMPACK\n" + zero + zero), HasSubstr("damaged"));
}

TEST_F(PackedFileTest, RefusesEveryDamageToTheHeader) {
  const std::string good = Whole(MakeParts());
  uint64_t length;
  std::memcpy(&length, good.data() + 8, sizeof(length));
  for (size_t i = 8; i < 24 + length; i += 7) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    EXPECT_NE(Refusal(bad), "") << i;
  }
}

TEST_F(PackedFileTest, RefusesFilesOfAnotherLength) {
  const std::string good = Whole(MakeParts());
  EXPECT_THAT(Refusal(good.substr(0, good.size() - 1)), HasSubstr("the file is cut short"));
  EXPECT_THAT(Refusal(good.substr(0, 100)), HasSubstr("the file is cut short"));
  EXPECT_THAT(Refusal(good + "x"), HasSubstr("1 bytes follow the last tensor"));
  Parts parts = MakeParts();
  parts.data.clear();
  EXPECT_THAT(Refusal(Whole(parts)), HasSubstr("the file is cut short"));
}

TEST_F(PackedFileTest, RefusesContradictions) {
  const auto refusal = [&](const std::function<void(PackedHeader*)>& change) { return Refusal(change); };
  EXPECT_THAT(refusal([](PackedHeader* h) { h->set_version(3); }), HasSubstr("version 3; expected 1 to 2"));
  EXPECT_THAT(refusal([](PackedHeader* h) { h->clear_version(); }), HasSubstr("version 0"));
  EXPECT_THAT(refusal([](PackedHeader* h) { h->mutable_spec()->set_width(0); }), HasSubstr("width"));
  EXPECT_THAT(refusal([](PackedHeader* h) { h->mutable_spec()->set_vocab_size(49); }),
              HasSubstr("lm_head.weight: has shape [50, 32], expected [49, 32]"));
  const auto tensor = [&](const std::function<void(PackedTensor*)>& change) {
    return Refusal([&](PackedHeader* h) { change(h->mutable_tensors(0)); });  // lm_head.weight
  };
  EXPECT_THAT(tensor([](PackedTensor* t) { t->set_dtype("F64"); }), HasSubstr("has dtype \"F64\""));
  EXPECT_THAT(tensor([](PackedTensor* t) { t->set_dtype("BF16"); }), HasSubstr("bytes; expected"));
  EXPECT_THAT(tensor([](PackedTensor* t) { t->set_dtype("I8"); }), HasSubstr("expected 2304 for I8 [50, 32]"));
  EXPECT_THAT(tensor([](PackedTensor* t) { t->set_offset(64); }),
              HasSubstr("begins at byte 64 of the data; expected 0"));
  EXPECT_THAT(tensor([](PackedTensor* t) { t->set_size(t->size() + 1); }), HasSubstr("bytes; expected"));
  EXPECT_THAT(tensor([](PackedTensor* t) { t->add_shape(1); }), HasSubstr("expected a matrix"));
  EXPECT_THAT(tensor([](PackedTensor* t) { t->set_shape(0, -1); }), HasSubstr("the extent -1"));
  EXPECT_THAT(tensor([](PackedTensor* t) {
                t->set_shape(0, int64_t{1} << 40);
                t->set_shape(1, int64_t{1} << 40);
              }),
              HasSubstr("too large"));
  EXPECT_THAT(tensor([](PackedTensor* t) { t->set_shape(0, std::numeric_limits<int64_t>::max()); }),
              HasSubstr("too large"));
  EXPECT_THAT(tensor([](PackedTensor* t) { t->set_layout(PackedTensor::ROWS); }), HasSubstr("bytes; expected"));
  EXPECT_THAT(tensor([](PackedTensor* t) { t->set_name("other"); }), HasSubstr("lm_head.weight: missing"));
  EXPECT_THAT(refusal([](PackedHeader* h) { *h->mutable_tensors(1) = h->tensors(0); }), HasSubstr("appears twice"));
  EXPECT_THAT(refusal([](PackedHeader* h) { h->mutable_tensors()->RemoveLast(); }),
              HasSubstr("follow the last tensor"));
}

// A tied embedding lies there as rows and as panels, which have to be of one matrix.
TEST_F(PackedFileTest, TiedHeads) {
  stack_.spec.set_tied_head(true);
  weights_ = RandomWeights(stack_.spec, 3);
  Parts parts = MakeParts();
  const absl::StatusOr<PackedModel> packed = OpenPackedModel(Path("good"));
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_NE(packed->weights->FindPanels("transformer.wte.weight"), nullptr);
  EXPECT_EQ(packed->weights->Names(), weights_->Names());

  for (PackedTensor& tensor : *parts.header.mutable_tensors()) {
    const bool panels = tensor.name() == "transformer.wte.weight" && tensor.layout() == PackedTensor::PANELS;
    if (panels) tensor.set_shape(0, 49);  // of the same size, because of the padding
  }
  EXPECT_THAT(Refusal(Whole(parts)), HasSubstr("two tensors, as rows and as panels"));
}

TEST_F(PackedFileTest, Int8FilesHoldEachMatrixOnce) {
  stack_.spec.set_tied_head(true);
  weights_ = RandomWeights(stack_.spec, 3);
  absl::StatusOr<std::unique_ptr<WeightSource>> int8 = QuantizeWeights(stack_.spec, *weights_);
  ASSERT_TRUE(int8.ok()) << int8.status();
  weights_.swap(*int8);
  Parts parts = MakeParts();
  EXPECT_EQ(parts.header.version(), 2u);
  const absl::StatusOr<PackedModel> packed = OpenPackedModel(Path("good"));
  ASSERT_TRUE(packed.ok()) << packed.status();
  // 50 outputs of 32 inputs: 4 panels of one block, 64 bytes of scales and 32·16 of numbers.
  const PanelsView* const panels = packed->weights->FindPanels("transformer.wte.weight");
  ASSERT_NE(panels, nullptr);
  EXPECT_EQ(panels->byte_size(), 4 * (64 + 512));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(panels->data) % 64, 0u);
  int of_embedding = 0;
  for (PackedTensor& tensor : *parts.header.mutable_tensors())
    of_embedding += tensor.name() == "transformer.wte.weight";
  EXPECT_EQ(of_embedding, 1);
  // Written again without a dtype, not a byte differs.
  ASSERT_TRUE(WritePackedModel(Path("again"), packed->spec, *packed->weights, {}).ok());
  EXPECT_EQ(*ReadFile(Path("again")) == *ReadFile(Path("good")), true);

  parts.header.set_version(1);
  EXPECT_THAT(Refusal(Whole(parts)), HasSubstr("is I8 in a file of version 1; expected version 2"));
  parts.header.set_version(2);
  for (PackedTensor& tensor : *parts.header.mutable_tensors()) {
    if (tensor.dtype() == "I8") tensor.set_layout(PackedTensor::ROWS);
  }
  EXPECT_THAT(Refusal(Whole(parts)), HasSubstr("has dtype \"I8\"; expected F32, BF16 or F16"));
}

TEST_F(PackedFileTest, WritesOnlyWhatItCanGiveBack) {
  class Doubles : public WeightSource {
   public:
    explicit Doubles(const WeightSource& source) : source_(source) {}
    std::string Description() const override { return "doubles"; }
    std::vector<std::string> Names() const override { return source_.Names(); }
    const TensorView* Find(absl::string_view name) const override { return source_.Find(name); }
    std::optional<TensorInfo> Info(absl::string_view name) const override {
      std::optional<TensorInfo> info = source_.Info(name);
      if (info.has_value()) info->dtype = DType::kF64;
      return info;
    }

   private:
    const WeightSource& source_;
  };
  const absl::Status doubles = WritePackedModel(Path("m"), stack_.spec, Doubles(*weights_), {});
  EXPECT_EQ(doubles.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(doubles.message()), HasSubstr("has dtype F64; packed models hold F32, BF16 and F16: "
                                                        "convert it with --dtype=f32"));
  stack_.spec.set_vocab_size(49);
  EXPECT_FALSE(WritePackedModel(Path("m"), stack_.spec, *weights_, {}).ok());
  EXPECT_FALSE(fs::exists(Path("m")));
}

// Files of version 1 took the spec as it is written into their fingerprint.
TEST_F(PackedFileTest, ReadsAndChecksVersion1) {
  const auto check = [&](uint32_t version, SpecForm form) {
    Parts parts = MakeParts();
    parts.header.set_version(version);
    parts.header.set_fingerprint(ModelFingerprint(stack_.spec, *weights_, form));
    EXPECT_TRUE(WriteFileAtomically(Path("v"), Whole(parts)).ok());
    const absl::StatusOr<PackedModel> model = OpenPackedModel(Path("v"));
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? model->weights->CheckContents({}).code() : absl::StatusCode::kUnknown;
  };
  EXPECT_EQ(check(1, SpecForm::kAsWritten), absl::StatusCode::kOk);
  EXPECT_EQ(check(1, SpecForm::kCanonical), absl::StatusCode::kDataLoss);
  EXPECT_EQ(check(2, SpecForm::kAsWritten), absl::StatusCode::kDataLoss);
  EXPECT_EQ(check(2, SpecForm::kCanonical), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace kvm
