#include "tools/convert_command.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/io/model_file.h"
#include "kvm/kernels/tensor.h"
#include "nlohmann/json.hpp"
#include "testing/command_testing.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ConvertCommandTest : public CommandFixture {
 protected:
  void SetUp() override {
    fs::remove_all(Path(""));
    fs::create_directories(Path(""));
  }
  static std::string Path(const std::string& name) { return CommandFixture::Path("d") + "/" + name; }

  // Two models have the same tensors: names, dtypes, shapes, bits.
  static void ExpectSameTensors(const std::string& a_path, const std::string& b_path) {
    const absl::StatusOr<OpenedModel> a = OpenModel(a_path), b = OpenModel(b_path);
    ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
    ASSERT_EQ(a->model.weights->Names(), b->model.weights->Names());
    for (const std::string& name : a->model.weights->Names()) {
      const TensorView& x = *a->model.weights->Find(name);
      const TensorView& y = *b->model.weights->Find(name);
      ASSERT_EQ(x.dtype, y.dtype) << name;
      ASSERT_EQ(x.shape, y.shape) << name;
      EXPECT_EQ(std::memcmp(x.data, y.data, static_cast<size_t>(x.byte_size())), 0) << name;
    }
  }

  static nlohmann::json Config(const std::string& folder) {
    return nlohmann::json::parse(ReadAll(folder + "/config.json"));
  }

  // That a run failed with one line and wrote nothing.
  void ExpectRefused(const std::vector<std::string>& args, int exit_status, const std::string& message) {
    EXPECT_EQ(Run(args), exit_status);
    EXPECT_THAT(err_, HasSubstr(message));
    EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), 1) << err_;
    EXPECT_EQ(out_, "");
    EXPECT_FALSE(fs::exists(args.back())) << args.back();
  }
};

// From each golden folder through every form and back, with shards on the way.
TEST_F(ConvertCommandTest, ThereAndBackIsTheSame) {
  for (const auto& entry : fs::directory_iterator("testing/golden")) {
    if (!entry.is_directory()) continue;
    const std::string golden = entry.path().string(), name = entry.path().filename().string();
    const std::string packed = Path(name + ".kvm"), single = Path(name + ".safetensors");
    const std::string folder = Path(name + "_folder"), hugging_face = Path(name + "_hf");
    ASSERT_EQ(Run({"convert", golden, packed}), 0) << err_;
    ASSERT_EQ(Run({"convert", packed, single}), 0) << err_;
    ASSERT_EQ(Run({"convert", single, hugging_face, "--shard-size=50KB"}), 0) << err_;
    EXPECT_TRUE(Exists(hugging_face + "/model.safetensors.index.json"));
    ExpectSameTensors(golden, packed);
    ExpectSameTensors(golden, hugging_face);
    EXPECT_EQ(Config(hugging_face), Config(golden)) << name;
    // Our own folder keeps the stack, not the config's other fields.
    ASSERT_EQ(Run({"convert", hugging_face, folder, "--to=folder"}), 0) << err_;
    ExpectSameTensors(golden, folder);
  }
}

TEST_F(ConvertCommandTest, ThroughAnRwkvCheckpoint) {
  ASSERT_EQ(Run({"convert", Golden("rwkv7"), Path("a.pth")}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("(pth): 72 tensors"));
  ASSERT_EQ(Run({"convert", Path("a.pth"), Path("b.kvm")}), 0) << err_;
  ASSERT_EQ(Run({"convert", Path("b.kvm"), Path("c")}), 0) << err_;
  ExpectSameTensors(Golden("rwkv7"), Path("c"));
  EXPECT_EQ(Config(Path("c"))["token_mixer"], "rwkv7");
  EXPECT_EQ(Config(Path("c"))["torch_dtype"], "float32");
  ASSERT_EQ(Run({"generate", "--model=" + Path("a.pth"), "--prompt-ids=1,2", "--max-tokens=4", "--seed=1"}), 0) << err_;
  const std::string text = out_;
  ASSERT_EQ(Run({"generate", "--model=" + Path("b.kvm"), "--prompt-ids=1,2", "--max-tokens=4", "--seed=1"}), 0) << err_;
  EXPECT_EQ(out_, text);
}

TEST_F(ConvertCommandTest, ChangesDTypes) {
  ASSERT_EQ(Run({"convert", Golden("kvm_sqrt"), Path("a.kvm"), "--dtype=bf16"}), 0) << err_;
  ASSERT_EQ(Run({"convert", Golden("kvm_sqrt"), Path("b"), "--dtype=bf16"}), 0) << err_;
  ASSERT_EQ(Run({"convert", Path("a.kvm"), Path("c")}), 0) << err_;
  ExpectSameTensors(Path("b"), Path("c"));
  EXPECT_EQ(Config(Path("b"))["torch_dtype"], "bfloat16");
  ASSERT_EQ(Run({"convert", Path("b"), Path("d.kvm"), "--dtype=f16"}), 0) << err_;
  ASSERT_EQ(Run({"inspect", Path("d.kvm"), "--check"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("58 tensors, 58.0 KiB: F16 58.0 KiB"));
}

// A packed file of int8 generates what int8 made at load does, and gives the numbers it stands for to other forms.
TEST_F(ConvertCommandTest, PacksInt8) {
  const auto generate = [&](const std::string& model, const std::string& weights) {
    EXPECT_EQ(Run({"generate", "--model=" + model, "--weights=" + weights, "--prompt-ids=1,2,3", "--max-tokens=20",
                   "--seed=1"}),
              0)
        << err_;
    return out_;
  };
  const std::string golden = Golden("kvm_sqrt");
  ASSERT_EQ(Run({"convert", golden, Path("a.kvm"), "--dtype=int8"}), 0) << err_;
  const std::string text = generate(golden, "int8");
  EXPECT_EQ(generate(Path("a.kvm"), "as-is"), text);
  EXPECT_EQ(generate(Path("a.kvm"), "int8"), text);
  ASSERT_EQ(Run({"convert", Path("a.kvm"), Path("b"), "--dtype=f32"}), 0) << err_;
  EXPECT_EQ(generate(Path("b"), "f32"), text);
  ASSERT_EQ(Run({"inspect", Path("a.kvm"), "--check"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("F32 "));
  EXPECT_THAT(out_, HasSubstr("I8 "));
  for (const char* out : {"c", "c.safetensors", "c.pth"}) {
    ExpectRefused({"convert", golden, "--dtype=int8", Path(out)}, 1, "I8 is for packed models (.kvm)");
  }
}

TEST_F(ConvertCommandTest, TheTokenizerComesAlong) {
  ASSERT_EQ(Run({"build", "--pattern=K", "--layers=1", "--width=32", "--heads=1", "--rotary=8", "--vocab=50304",
                 "--tokenizer=" + Gpt2(), "--out=" + Path("m")}),
            0)
      << err_;
  ASSERT_EQ(Run({"convert", Path("m"), Path("m.kvm")}), 0) << err_;
  EXPECT_EQ(ReadAll(Path("m.tokenizer.json")) == ReadAll(Gpt2()), true);
  ASSERT_EQ(Run({"generate", "--model=" + Path("m.kvm"), "--prompt=Hello", "--max-tokens=2", "--threads=1"}), 0)
      << err_;
  ASSERT_EQ(Run({"convert", Path("m.kvm"), Path("n")}), 0) << err_;
  EXPECT_EQ(ReadAll(Path("n/tokenizer.json")) == ReadAll(Gpt2()), true);
}

TEST_F(ConvertCommandTest, NotesGoToTheErrorStream) {
  ASSERT_EQ(Run({"convert", Golden("kvm_sqrt"), Path("a"), "--shard-size=50KB"}), 0) << err_;
  EXPECT_EQ(err_, "");
  std::string index = ReadAll(Path("a/model.safetensors.index.json"));
  const size_t number = index.find("118816");
  ASSERT_NE(number, std::string::npos) << index;
  WriteAll(Path("a/model.safetensors.index.json"), index.replace(number, 6, "118817"));
  ASSERT_EQ(Run({"convert", Path("a"), Path("b.kvm")}), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("total_size is 118817; the tensors have 118816 bytes\n"));
}

TEST_F(ConvertCommandTest, DamageIsFound) {
  ASSERT_EQ(Run({"convert", Golden("kvm_sqrt"), Path("a.kvm")}), 0) << err_;
  std::string bytes = ReadAll(Path("a.kvm"));
  bytes[bytes.size() - 100] = static_cast<char>(bytes[bytes.size() - 100] ^ 1);
  WriteAll(Path("a.kvm"), bytes);
  ASSERT_EQ(Run({"inspect", Path("a.kvm")}), 0) << err_;
  EXPECT_EQ(Run({"inspect", Path("a.kvm"), "--check"}), 1);
  EXPECT_THAT(err_, HasSubstr("a.kvm: the weights are not those that the header's fingerprint speaks of"));
}

// And is not passed on, under whatever new checksums.
TEST_F(ConvertCommandTest, DamageIsNotConverted) {
  ASSERT_EQ(Run({"convert", Golden("rwkv7"), Path("a.kvm")}), 0) << err_;
  ASSERT_EQ(Run({"convert", Golden("rwkv7"), Path("a.pth")}), 0) << err_;
  for (const std::string& in : {Path("a.kvm"), Path("a.pth")}) {
    std::string bytes = ReadAll(in);
    // Inside the weights of either form.
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    WriteAll(in, bytes);
    for (const char* out : {"b", "b.kvm", "b.pth", "b.safetensors"}) {
      for (const char* dtype : {"--dtype=as-is", "--dtype=bf16"}) {
        ExpectRefused({"convert", dtype, in, Path(out)}, 1, in + ": ");
        EXPECT_THAT(err_, HasSubstr("damaged"));
      }
    }
    EXPECT_EQ(Run({"build", "--base=" + in, "--out=" + Path("b")}), 1);
    EXPECT_THAT(err_, HasSubstr("damaged"));
    EXPECT_EQ(Run({"inspect", "--check", in}), 1);
    EXPECT_FALSE(Exists(Path("b")));
  }
}

TEST_F(ConvertCommandTest, InterruptLeavesNothing) {
  const std::string in = Path("in.pth");
  ASSERT_EQ(Run({"convert", Golden("rwkv7"), in}), 0) << err_;
  const auto names = [] {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(Path(""))) names.push_back(entry.path().string());
    return names;
  };
  const std::vector<std::string> before = names();
  const std::vector<std::string> forms[] = {
      {Path("new/b"), "--shard-size=50KB"}, {Path("new/b.kvm")}, {Path("new/b.pth")}, {Path("new/b.safetensors")}};
  for (const std::vector<std::string>& form : forms) {
    std::vector<std::string> args = {"convert", "--dtype=bf16", in};
    args.insert(args.end(), form.begin(), form.end());
    int interrupted = 0;
    for (int at = 1;; at += 10) {
      interrupted_ = false;
      interrupt_at_ = at;
      const int exit_status = Run(args);
      if (exit_status == 0) break;
      ++interrupted;
      EXPECT_EQ(exit_status, 130) << err_;
      EXPECT_EQ(err_, "kvm: interrupted\n");
      EXPECT_EQ(names(), before) << form[0] << " " << at;
    }
    // Both while the source is checked and while the model is written.
    EXPECT_GT(interrupted, 10) << form[0];
    fs::remove_all(Path("new"));
  }
}

TEST_F(ConvertCommandTest, BrokenTokenizersAreNoted) {
  ASSERT_EQ(Run({"convert", Golden("kvm_sqrt"), Path("m")}), 0) << err_;
  const struct {
    std::string text, note;
  } cases[] = {{"version https://git-lfs.github.com/spec/v1\n", "it looks like a Git LFS pointer"},
               {std::string(64, '\0'), "it begins with zeros"},
               {"", "it is empty"}};
  for (const auto& c : cases) {
    WriteAll(Path("m/tokenizer.json"), c.text);
    for (const std::vector<std::string>& args : {std::vector<std::string>{"inspect", Path("m")},
                                                 {"convert", Path("m"), Path("n.kvm")},
                                                 {"build", "--base=" + Path("m"), "--out=" + Path("n")}}) {
      EXPECT_EQ(Run(args), 0) << err_;
      EXPECT_THAT(err_, HasSubstr("note: the tokenizer cannot be used: " + Path("m/tokenizer.json")));
      EXPECT_THAT(err_, HasSubstr(c.note));
    }
    fs::remove_all(Path("n"));
    fs::remove(Path("n.kvm"));
    fs::remove(Path("n.tokenizer.json"));
  }
}

TEST_F(ConvertCommandTest, RefusesWhatCannotBe) {
  const std::string golden = Golden("kvm_sqrt");
  ExpectRefused({"convert", Path("absent"), Path("out.kvm")}, 1, "absent");
  ExpectRefused({"convert", golden, Path("out.pth")}, 1, "is no RWKV-7 mixer");
  WriteAll(Path("pointer.kvm"), "version https://git-lfs.github.com/spec/v1\n");
  ExpectRefused({"convert", Path("pointer.kvm"), Path("out")}, 1, "Git LFS pointer");
  ASSERT_EQ(Run({"build", "--pattern=RRRK", "--layers=4", "--width=64", "--heads=2", "--rotary=8", "--vocab=64",
                 "--rwkv-heads=2", "--out=" + Path("hybrid")}),
            0)
      << err_;
  ExpectRefused({"convert", Path("hybrid"), Path("out")}, 1, "--to=folder can hold it");
  ASSERT_EQ(Run({"convert", golden, Path("a.kvm")}), 0) << err_;
  EXPECT_EQ(Run({"convert", Golden("rwkv7"), Path("a.kvm")}), 1);
  EXPECT_THAT(err_, HasSubstr("exists already"));
  EXPECT_EQ(Run({"convert", Golden("rwkv7"), golden}), 1);
  EXPECT_THAT(err_, HasSubstr("holds config.json already"));
}

TEST_F(ConvertCommandTest, ForceReplacesAFile) {
  ASSERT_EQ(Run({"convert", Golden("kvm_sqrt"), Path("a.kvm")}), 0) << err_;
  EXPECT_EQ(Run({"convert", Golden("kvm_fixed"), Path("a.kvm")}), 1);
  EXPECT_THAT(err_, HasSubstr("exists already; expected a new file, or --force"));
  ASSERT_EQ(Run({"convert", Golden("kvm_fixed"), Path("a.kvm"), "--force"}), 0) << err_;
  ASSERT_EQ(Run({"convert", Golden("kvm_fixed"), Path("b.kvm")}), 0) << err_;
  EXPECT_EQ(ReadAll(Path("a.kvm")), ReadAll(Path("b.kvm")));
  // Not the model itself, and no folder.
  EXPECT_EQ(Run({"convert", Path("a.kvm"), Path("a.kvm"), "--force"}), 1);
  EXPECT_THAT(err_, HasSubstr("is a file of the model that it is made from"));
  EXPECT_EQ(Run({"convert", Path("a.kvm"), Path("folder"), "--force"}), 2);
}

// Endings count in any case.
TEST_F(ConvertCommandTest, EndingsMayBeLarge) {
  ASSERT_EQ(Run({"convert", Golden("kvm_sqrt"), Path("A.KVM")}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("(packed)"));
  EXPECT_TRUE(fs::is_regular_file(Path("A.KVM")));
}

TEST_F(ConvertCommandTest, RefusesToWriteIntoTheModel) {
  ASSERT_EQ(Run({"convert", Golden("kvm_sqrt"), Path("m")}), 0) << err_;
  ExpectRefused({"convert", Path("m"), Path("m/x.kvm")}, 1, "lies in the folder of the model");
  ExpectRefused({"convert", Path("m/model.safetensors"), Path("m/sub")}, 1, "lies in the folder of the model");
  ASSERT_EQ(Run({"convert", Path("m"), Path("a.kvm")}), 0) << err_;
  EXPECT_EQ(Run({"convert", Path("a.kvm"), Path("b.kvm")}), 0) << err_;
}

TEST_F(ConvertCommandTest, RefusesBadUsage) {
  EXPECT_EQ(Run({"convert"}), 2);
  EXPECT_EQ(Run({"convert", "a"}), 2);
  EXPECT_EQ(Run({"convert", "a", "b", "c"}), 2);
  EXPECT_EQ(Run({"convert", "a", "b", "--to=gguf"}), 2);
  EXPECT_EQ(Run({"convert", "a", "b", "--dtype=int4"}), 2);
  for (const char* size : {"", "0", "-1", "5TB", "GB", "1.5GB", "99999999999GB"}) {
    EXPECT_EQ(Run({"convert", "a", "b", absl::StrCat("--shard-size=", size)}), 2) << size;
    EXPECT_THAT(err_, HasSubstr("--shard-size")) << size;
  }
}

}  // namespace
}  // namespace kvm
