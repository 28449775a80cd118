// Generating in parts, with sessions in files and in a store, is generating at once.

#include <unistd.h>

#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/state/store_folder.h"
#include "tools/command_testing.h"

namespace kvm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// So many ids, which begin alike for every count.
std::string Ids(int count) {
  std::string ids;
  for (int i = 0; i < count; ++i) ids += (i == 0 ? "" : ",") + std::to_string((i * i * 7 + i * 3) % 61);
  return ids;
}

class GenerateSessionTest : public CommandFixture {
 protected:
  int Generate(const std::vector<std::string>& more, const std::string& model = "kvm_rwkv7_hybrid") {
    std::vector<std::string> args = {"generate", "--model=" + Golden(model), "--threads=1"};
    args.insert(args.end(), more.begin(), more.end());
    return Run(args);
  }

  // What 40 tokens at once are.
  std::string AtOnce(const std::string& prompt_ids) {
    EXPECT_EQ(Generate({"--prompt-ids=" + prompt_ids, "--max-tokens=40", "--seed=3"}), 0) << err_;
    return Line();
  }

  // What was printed, without the line's end.
  std::string Line() const { return out_.substr(0, out_.find('\n')); }
};

TEST_F(GenerateSessionTest, PartsInFilesAreTheWhole) {
  const std::string whole = AtOnce("1,2,3"), file = "--save-session=" + Path("talk");
  ASSERT_EQ(Generate({"--prompt-ids=1,2,3", "--max-tokens=15", "--seed=3", file}), 0) << err_;
  EXPECT_THAT(err_, HasSubstr(": 18 tokens\n"));
  const std::string first = Line();
  ASSERT_EQ(Generate({"--session=" + Path("talk"), "--max-tokens=10", file}), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("session: 18 tokens; prompt: 0 tokens, "));
  const std::string second = Line();
  // The seed that it has anyway changes nothing, and more threads change nothing.
  ASSERT_EQ(Generate({"--session=" + Path("talk"), "--max-tokens=15", "--seed=3", "--threads=2"}), 0) << err_;
  EXPECT_EQ(first + " " + second + " " + Line(), whole);
}

TEST_F(GenerateSessionTest, PartsInAStoreAreTheWhole) {
  const std::string whole = AtOnce(Ids(600)), store = "--store=" + Path("store");
  ASSERT_EQ(Generate({store, "--prompt-ids=" + Ids(600), "--max-tokens=15", "--seed=3", "--save-session=talk"}), 0)
      << err_;
  EXPECT_THAT(err_, AllOf(HasSubstr("saved talk: 615 tokens"), HasSubstr("prompt: 600 tokens, 0 of them reused")));
  const std::string first = Line();
  ASSERT_EQ(Generate({store, "--session=talk", "--max-tokens=25", "--save-session=more"}), 0) << err_;
  EXPECT_EQ(first + " " + Line(), whole);
  // Going on changed nothing of what was stored.
  ASSERT_EQ(Generate({store, "--session=talk", "--max-tokens=25", "--save-session=talk"}), 0) << err_;
  EXPECT_EQ(first + " " + Line(), whole);
  EXPECT_EQ(ReadAll(Path("store") + "/sessions/talk.kvmstate"), ReadAll(Path("store") + "/sessions/more.kvmstate"));
}

TEST_F(GenerateSessionTest, StoredBeginningsAreReusedAndChangeNothing) {
  const std::string whole = AtOnce(Ids(1300)), store = "--store=" + Path("store");
  ASSERT_EQ(Generate({store, "--prompt-ids=" + Ids(1100), "--max-tokens=1"}), 0) << err_;
  const std::vector<std::string> longer = {store, "--prompt-ids=" + Ids(1300), "--max-tokens=40", "--seed=3"};
  ASSERT_EQ(Generate(longer), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("prompt: 1,300 tokens, 1,024 of them reused, "));
  EXPECT_EQ(Line(), whole);
  ASSERT_EQ(Run({"session", "drop", "--snapshots", store}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("dropped 2 snapshots, "));
  ASSERT_EQ(Generate(longer), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("prompt: 1,300 tokens, 0 of them reused, "));
  EXPECT_EQ(Line(), whole);
  ASSERT_EQ(Run({"session", "drop", "--snapshots", store}), 0) << err_;
  ASSERT_EQ(Generate({store, "--prompt-ids=" + Ids(1300), "--max-tokens=1", "--store-snapshots=0"}), 0) << err_;
  ASSERT_EQ(Generate(longer), 0) << err_;
  EXPECT_THAT(err_, HasSubstr(" 0 of them reused, "));
}

TEST_F(GenerateSessionTest, APromptContinuesASession) {
  ASSERT_EQ(Generate({"--prompt-ids=1,2,3,4,5,6,7", "--max-tokens=20", "--temperature=0"}), 0) << err_;
  const std::string expected = Line();
  ASSERT_EQ(Generate({"--prompt-ids=1,2,3,4", "--max-tokens=0", "--save-session=" + Path("talk")}), 0) << err_;
  ASSERT_EQ(Generate({"--session=" + Path("talk"), "--prompt-ids=5,6,7", "--max-tokens=20", "--temperature=0"}), 0)
      << err_;
  EXPECT_EQ(Line(), expected);
  EXPECT_THAT(err_, HasSubstr("session: 4 tokens; prompt: 3 tokens, "));
}

TEST_F(GenerateSessionTest, SamplingFlagsOverrideTheSession) {
  const std::string talk = Path("talk");
  ASSERT_EQ(Generate({"--prompt-ids=1,2,3", "--max-tokens=5", "--temperature=0", "--save-session=" + talk}), 0) << err_;
  ASSERT_EQ(Generate({"--session=" + talk, "--max-tokens=30"}), 0) << err_;
  const std::string most_likely = Line();
  ASSERT_EQ(Generate({"--session=" + talk, "--max-tokens=30", "--seed=9"}), 0) << err_;
  EXPECT_EQ(Line(), most_likely);  // the temperature is still 0
  ASSERT_EQ(Generate({"--session=" + talk, "--max-tokens=30", "--temperature=3"}), 0) << err_;
  EXPECT_NE(Line(), most_likely);
}

TEST_F(GenerateSessionTest, AnotherModelsSessionIsRefusedWithBothFingerprints) {
  const std::string file = "--save-session=" + Path("talk"), store = "--store=" + Path("store");
  ASSERT_EQ(Generate({"--prompt-ids=1,2,3", "--max-tokens=5", file}), 0) << err_;
  EXPECT_EQ(Generate({"--session=" + Path("talk"), "--max-tokens=5"}, "kvm_sqrt"), 1);
  const std::string both = "is of another model: fingerprint [0-9a-f]+, the loaded model is of [0-9a-f]+";
  EXPECT_THAT(err_, ::testing::ContainsRegex(both));
  EXPECT_EQ(out_, "");
  EXPECT_EQ(Generate({"--session=" + Path("talk"), "--max-tokens=5", "--state=bf16"}), 1);
  EXPECT_THAT(err_, HasSubstr("is of state dtype F32, the loaded model is of BF16"));

  ASSERT_EQ(Generate({store, "--prompt-ids=1,2,3", "--max-tokens=5", "--save-session=talk"}), 0) << err_;
  EXPECT_EQ(Generate({store, "--session=talk"}, "kvm_sqrt"), 1);
  EXPECT_THAT(err_, ::testing::ContainsRegex(both));
  EXPECT_EQ(Generate({store, "--prompt-ids=1", "--save-session=talk"}, "kvm_sqrt"), 1);  // its name is taken
  EXPECT_THAT(err_, ::testing::ContainsRegex(both));
  EXPECT_EQ(out_, "");
}

TEST_F(GenerateSessionTest, NamesThatAreNotThereAreNamedWithTheNearest) {
  const std::string store = "--store=" + Path("store");
  ASSERT_EQ(Generate({store, "--prompt-ids=1,2,3", "--max-tokens=1", "--save-session=monday"}), 0) << err_;
  EXPECT_EQ(Generate({store, "--session=mondey"}), 1);
  EXPECT_THAT(err_, HasSubstr("no session \"mondey\" in the store; did you mean monday?"));
  EXPECT_EQ(Generate({store, "--prompt-ids=1", "--save-session=a/b"}), 1);
  EXPECT_THAT(err_, HasSubstr("session name \"a/b\""));
  EXPECT_EQ(Generate({"--session=" + Path("absent")}), 1);
  EXPECT_EQ(Generate({"--prompt-ids=1", "--save-session=" + Path("absent") + "/talk"}), 1);
  EXPECT_EQ(Generate({store, "--prompt-ids=1", "--store-snapshots=3"}), 2);
  EXPECT_THAT(err_, HasSubstr("--store-snapshots=3: expected a power of two"));
  EXPECT_EQ(out_, "");
}

TEST_F(GenerateSessionTest, AStoreInUseIsRefusedWithItsProcess) {
  const auto folder = StoreFolder::Open(Path("store"));
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(Generate({"--store=" + Path("store"), "--prompt-ids=1"}), 1);
  EXPECT_THAT(err_, HasSubstr("is in use by process " + std::to_string(getpid())));
}

// Counts what is printed, and is interrupted after so many tokens.
class Interrupter : public std::stringbuf {
 public:
  Interrupter(int tokens, bool* interrupted) : left_(tokens), interrupted_(interrupted) {}
  int sync() override {
    *interrupted_ = --left_ <= 0;
    return 0;
  }

 private:
  int left_;
  bool* interrupted_;
};

TEST_F(GenerateSessionTest, CtrlCKeepsWhatWasGenerated) {
  const std::string whole = AtOnce("1,2,3");
  for (const std::string& store : {std::string("--store="), "--store=" + Path("store")}) {
    const bool with_store = store != "--store=";
    const std::string name = with_store ? "talk" : Path("talk");
    bool interrupted = false;
    Interrupter buffer(7, &interrupted);
    std::istringstream in;
    std::ostringstream err;
    std::ostream out(&buffer);
    Console console{in, out, err, false, [&] { return interrupted; }};
    std::vector<std::string> args = {"generate",
                                     "--model=" + Golden("kvm_rwkv7_hybrid"),
                                     "--prompt-ids=1,2,3",
                                     "--seed=3",
                                     "--save-session=" + name,
                                     "--max-tokens=40",
                                     "--threads=1"};
    if (with_store) args.push_back(store);
    EXPECT_EQ(RunCommandLine(AllCommands(), args, console), kExitInterrupted) << err.str();
    EXPECT_THAT(err.str(), HasSubstr(": 10 tokens\n"));
    const std::string first = buffer.str().substr(0, buffer.str().find('\n'));
    std::vector<std::string> more = {"--session=" + name, "--max-tokens=33"};
    if (with_store) more.push_back(store);
    ASSERT_EQ(Generate(more), 0) << err_;
    EXPECT_EQ(first + " " + Line(), whole);
  }
}

TEST_F(GenerateSessionTest, CtrlCInThePromptSavesNothing) {
  interrupted_ = true;
  EXPECT_EQ(Generate({"--prompt-ids=1,2,3", "--save-session=" + Path("talk")}), 130);
  EXPECT_FALSE(Exists(Path("talk")));
}

TEST_F(GenerateSessionTest, ProvenanceChangesNoTokenAndIsPartOfTheSession) {
  const std::string whole = AtOnce(Ids(100)), talk = Path("talk");
  ASSERT_EQ(
      Generate({"--prompt-ids=" + Ids(100), "--max-tokens=15", "--seed=3", "--provenance", "--save-session=" + talk}),
      0)
      << err_;
  const std::string first = Line();
  EXPECT_EQ(Generate({"--session=" + talk, "--max-tokens=25"}), 1);
  EXPECT_THAT(err_, HasSubstr("is of provenance true, the loaded model is of false"));
  ASSERT_EQ(Generate({"--session=" + talk, "--max-tokens=25", "--provenance"}), 0) << err_;
  EXPECT_EQ(first + " " + Line(), whole);
}

TEST_F(GenerateSessionTest, WithoutAStoreNothingIsSaidOfReuse) {
  ASSERT_EQ(Generate({"--prompt-ids=1,2,3", "--max-tokens=2"}), 0) << err_;
  EXPECT_THAT(err_, AllOf(Not(HasSubstr("reused")), Not(HasSubstr("session"))));
}

}  // namespace
}  // namespace kvm
