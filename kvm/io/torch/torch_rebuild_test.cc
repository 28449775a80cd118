// The calls by which PyTorch's pickles make tensors, and what their arguments ask for.

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/io/torch/hand_made_torch.h"
#include "kvm/io/torch/torch_file.h"
#include "kvm/kernels/tensor.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<TorchFile> Open(const std::string& path) {
  auto file = TorchFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? std::move(*file) : nullptr;
}

std::vector<float> Floats(const TorchFile& file) {
  const TensorView* tensor = file.Find("w");
  EXPECT_NE(tensor, nullptr);
  return tensor == nullptr ? std::vector<float>() : ReadFloats(*tensor);
}

void ExpectRefused(const std::string& path, const std::string& message) {
  const auto file = TorchFile::Open(path);
  ASSERT_FALSE(file.ok()) << message;
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(message));
}

// A dict of the tensor w, which a function makes of the storage of four numbers and further arguments.
std::string PickleOfCall(const std::string& call) { return absl::StrCat("\x80\x02}(", PickledText("w"), call, "u."); }

std::string PlainTensor() {
  return absl::StrCat("ctorch._utils\n_rebuild_tensor_v2\n(", PickledStorage("torch\nFloatStorage", 4), PickledInt(0),
                      PickledTuple({4}), PickledTuple({1}), "\x89}tR");
}

// The form of _rebuild_tensor_v2 or v3 with metadata.
std::string TensorWithMetadata(bool typed, const std::string& metadata) {
  const std::string storage =
      PickledStorage(typed ? "torch\nFloatStorage" : "torch.storage\nUntypedStorage", typed ? 4 : 16);
  return absl::StrCat("ctorch._utils\n_rebuild_tensor_v", typed ? "2" : "3", "\n(", storage, PickledInt(0),
                      PickledTuple({4}), PickledTuple({1}), "\x89}", typed ? "" : "ctorch\nfloat32\n", metadata, "tR");
}

std::string MadeOf(const std::string& call, const std::string& data) {
  WriteZip(::testing::TempDir() + "/call.pth", {{"n/data.pkl", PickleOfCall(call)}, {"n/data/0", data}});
  return ::testing::TempDir() + "/call.pth";
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// torch._neg_view and the imaginary part of a conjugate are saved as what they view, and said to be negated.
TEST(TorchRebuild, NegatesWhatIsSaidToBeNegated) {
  const std::string floats = BytesOf<float>({1.5f, 0.0f, -3.0f, 7.0f});
  const std::string negated = "}(" + PickledText("neg") + "\x88u";
  for (const bool typed : {true, false}) {
    for (const std::string& none : {std::string("N"), std::string("}")}) {
      const auto plain = Open(MadeOf(TensorWithMetadata(typed, none), floats));
      ASSERT_NE(plain, nullptr);
      EXPECT_THAT(Floats(*plain), ElementsAre(1.5f, 0.0f, -3.0f, 7.0f));
    }
    const auto file = Open(MadeOf(TensorWithMetadata(typed, negated), floats));
    ASSERT_NE(file, nullptr);
    EXPECT_THAT(Floats(*file), ElementsAre(-1.5f, -0.0f, 3.0f, -7.0f));
    EXPECT_TRUE(std::signbit(Floats(*file)[1]));
  }
  // As an imaginary part lies: every second element.
  const auto strided = [&](const std::string& type, int64_t elements, const std::string& data) {
    return Open(MadeOf(absl::StrCat("ctorch._utils\n_rebuild_tensor_v2\n(", PickledStorage("torch\n" + type, elements),
                                    PickledInt(1), PickledTuple({2}), PickledTuple({2}), "\x89}", negated, "tR"),
                       data));
  };
  const auto imaginary = strided("FloatStorage", 4, floats);
  ASSERT_NE(imaginary, nullptr);
  EXPECT_THAT(Floats(*imaginary), ElementsAre(0.0f, -7.0f));
  const auto doubles = strided("DoubleStorage", 4, BytesOf<double>({1, 2, 3, -4}));
  ASSERT_NE(doubles, nullptr);
  EXPECT_THAT(Floats(*doubles), ElementsAre(-2.0f, 4.0f));
  const auto halves = strided("BFloat16Storage", 4, BytesOf<uint16_t>({0, 0x3f80, 0, 0xc000}));
  ASSERT_NE(halves, nullptr);
  EXPECT_THAT(Floats(*halves), ElementsAre(-1.0f, 2.0f));
  for (const auto& [type, data] :
       std::map<std::string, std::string>{{"CharStorage", BytesOf<int8_t>({0, 5, 0, -6})},
                                          {"ShortStorage", BytesOf<int16_t>({0, 5, 0, -6})},
                                          {"IntStorage", BytesOf<int32_t>({0, 5, 0, -6})},
                                          {"LongStorage", BytesOf<int64_t>({0, 5, 0, -6})}}) {
    const auto whole = strided(type, 4, data);
    ASSERT_NE(whole, nullptr);
    EXPECT_THAT(Floats(*whole), ElementsAre(-5.0f, 6.0f)) << type;
  }
  const auto bytes = strided("ByteStorage", 4, BytesOf<uint8_t>({0, 5, 0, 250}));
  ASSERT_NE(bytes, nullptr);
  EXPECT_THAT(Floats(*bytes), ElementsAre(251.0f, 6.0f));
}

TEST(TorchRebuild, RefusesOtherMetadataByName) {
  const std::string floats(16, '\0');
  const auto flag = [](const std::string& name, const std::string& value) {
    return "}(" + PickledText(name) + value + "u";
  };
  for (const bool typed : {true, false}) {
    const auto refused = [&](const std::string& metadata, const std::string& message) {
      ExpectRefused(MadeOf(TensorWithMetadata(typed, metadata), floats), "tensor \"w\": its metadata " + message);
    };
    refused(flag("conj", "\x88"), "has \"conj\" (a bool), expected at most \"neg\"");
    refused(flag("backend", "\x88"), "has \"backend\" (a bool)");
    refused(flag("neg", "\x89"), "has \"neg\" (a bool)");
    refused(flag("neg", "K\x01"), "has \"neg\" (a whole number)");
    refused("}(K\x01\x88u", "has a whole number (a bool)");
    refused(PickledText("neg"), "is a string, expected a dict");
  }
  ExpectRefused(
      MadeOf(absl::StrCat("ctorch._utils\n_rebuild_tensor_v2\n(", PickledStorage("torch\nBoolStorage", 4),
                          PickledInt(0), PickledTuple({4}), PickledTuple({1}), "\x89}", flag("neg", "\x88"), "tR"),
             std::string(4, '\0')),
      "its metadata has \"neg\"");
}

TEST(TorchRebuild, ReadsEveryFormOfDenseTensorAndParameter) {
  const std::string floats = BytesOf<float>({1, 2, 3, 4});
  const std::string attributes = "}(" + PickledText("initialized") + "\x88u";
  const std::string v2_arguments = absl::StrCat("(", PickledStorage("torch\nFloatStorage", 4), PickledInt(0),
                                                PickledTuple({4}), PickledTuple({1}), "\x89}t");
  const std::string of_type = "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\n";
  const std::string forms[] = {
      absl::StrCat("ctorch._utils\n_rebuild_tensor\n(", PickledStorage("torch\nFloatStorage", 4), PickledInt(0),
                   PickledTuple({4}), PickledTuple({1}), "tR"),
      absl::StrCat("ctorch._utils\n_rebuild_parameter\n(", PlainTensor(), "\x88}tR"),
      absl::StrCat("ctorch._utils\n_rebuild_parameter_with_state\n(", PlainTensor(), "\x88}", attributes, "tR"),
      absl::StrCat(of_type, "ctorch\nTensor\n", v2_arguments, attributes, "tR"),
      absl::StrCat(of_type, "ctorch._tensor\nTensor\n", v2_arguments, attributes, "tR"),
      absl::StrCat("ctorch._utils\n_rebuild_parameter\n(", of_type, "ctorch.nn.parameter\nParameter\n", v2_arguments,
                   attributes, "tR\x88}tR"),
  };
  for (const std::string& form : forms) {
    const auto file = Open(MadeOf(form, floats));
    ASSERT_NE(file, nullptr) << form;
    EXPECT_THAT(Floats(*file), ElementsAre(1, 2, 3, 4)) << form;
  }
  ExpectRefused(MadeOf(absl::StrCat(of_type, "ctorch\nFloatStorage\n", v2_arguments, attributes, "tR"), floats),
                "of a class that is neither Tensor nor Parameter");
  ExpectRefused(MadeOf(of_type + "tR", floats), "a typed tensor made of 1 arguments, expected 4");
  for (const char* name :
       {"_rebuild_qtensor", "_rebuild_sparse_tensor", "_rebuild_meta_tensor_no_storage",
        "_rebuild_device_tensor_from_numpy", "_rebuild_nested_tensor", "_rebuild_wrapper_subclass"}) {
    ExpectRefused(MadeOf(absl::StrCat("ctorch._utils\n", name, "\n)R"), floats),
                  absl::StrCat("the pickle asks for \"torch._utils.", name, "\", which is refused"));
  }
}

}  // namespace
}  // namespace kvm
