// Generating in parts, with sessions in files and in a store, is generating at once.

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/state/store/store_folder.h"
#include "nlohmann/json.hpp"
#include "testing/command_testing.h"

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
  EXPECT_THAT(err_, HasSubstr("prompt: 1,300 tokens, 1,100 of them reused, "));
  EXPECT_EQ(Line(), whole);
  ASSERT_EQ(Run({"session", "drop", "--snapshots", store}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("dropped 4 snapshots, "));
  ASSERT_EQ(Generate(longer), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("prompt: 1,300 tokens, 0 of them reused (nothing is stored yet of this model with these "
                              "options), "));
  EXPECT_EQ(Line(), whole);
  ASSERT_EQ(Run({"session", "drop", "--snapshots", store}), 0) << err_;
  ASSERT_EQ(Generate({store, "--prompt-ids=" + Ids(1300), "--max-tokens=1", "--store-snapshots=0"}), 0) << err_;
  ASSERT_EQ(Generate(longer), 0) << err_;
  EXPECT_THAT(err_, HasSubstr(" 0 of them reused (nothing is stored yet"));
}

TEST_F(GenerateSessionTest, TheSamePromptIsHadWholeAndTheNextTurnBeginsAtItsEnd) {
  const std::string whole = AtOnce("1,2,3"), store = "--store=" + Path("store");
  const std::vector<std::string> again = {store, "--prompt-ids=1,2,3", "--max-tokens=40", "--seed=3"};
  for (const char* const reused :
       {"3 tokens, 0 of them reused (nothing is stored yet of this model with these options)",
        "3 tokens, 3 of them reused, - tokens/s"}) {
    ASSERT_EQ(Generate(again), 0) << err_;
    EXPECT_THAT(err_, HasSubstr(reused));
    EXPECT_EQ(Line(), whole);
  }
  ASSERT_EQ(Generate({store, "--prompt-ids=1,2,3,9,8", "--max-tokens=1"}), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("5 tokens, 3 of them reused, "));
  ASSERT_EQ(Generate({store, "--prompt-ids=2,2,3", "--max-tokens=1"}), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("3 tokens, 0 of them reused (nothing that is stored is a beginning of it)"));
  ASSERT_EQ(Run({"session", "save", "a", store, "--model=" + Golden("kvm_rwkv7_hybrid"), "--prompt-ids=9,9"}), 0);
  EXPECT_THAT(out_, HasSubstr("2 tokens, 0 of them reused (nothing that is stored is a beginning of it); state: "));
}

TEST_F(GenerateSessionTest, SnapshotsStayWithinTheirBytes) {
  const std::string store = "--store=" + Path("store");
  for (int i = 1; i <= 12; ++i) {
    ASSERT_EQ(Generate({store, "--prompt-ids=" + std::to_string(i), "--max-tokens=1", "--store-bytes=100KB"}), 0);
    EXPECT_EQ(err_.find("not all snapshots"), std::string::npos) << err_;
  }
  ASSERT_EQ(Run({"session", "list", store, "--json"}), 0) << err_;
  const nlohmann::json list = nlohmann::json::parse(out_);
  EXPECT_LE(list["snapshot_bytes"], 100000);
  EXPECT_GE(list["snapshots"], 2);
  EXPECT_LT(list["snapshots"], 12);
  ASSERT_EQ(Generate({store, "--prompt-ids=12", "--max-tokens=1"}), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("1 tokens, 1 of them reused"));
  // A session is no snapshot, and what cannot be kept is said.
  ASSERT_EQ(Generate({store, "--prompt-ids=1,1", "--max-tokens=1", "--store-bytes=10", "--save-session=talk"}), 0);
  EXPECT_THAT(err_, AllOf(HasSubstr("saved talk: 3 tokens"), HasSubstr("note: not all snapshots are kept: "),
                          HasSubstr("snapshot budget of 10 bytes"), HasSubstr("; --store-bytes says how many")));
  for (const char* const bytes : {"0", "x", "-1", "2000000GiB"}) {
    EXPECT_EQ(Generate({store, "--prompt-ids=1", std::string("--store-bytes=") + bytes}), 2);
    EXPECT_THAT(err_, HasSubstr("expected bytes such as 5GB, 500MB or 2GiB, at least 1 and at most 1048576GiB"));
  }
}

TEST_F(GenerateSessionTest, WhatCannotBeSavedIsSaidBeforeAnyWork) {
  const std::string store = "--store=" + Path("store"), path = Path("store") + "/sessions/talk.kvmstate";
  ASSERT_EQ(Generate({store, "--prompt-ids=1,2,3", "--max-tokens=1", "--save-session=talk"}), 0) << err_;
  ASSERT_EQ(chmod(path.c_str(), 0400), 0);
  EXPECT_EQ(Generate({store, "--prompt-ids=1,2,3", "--max-tokens=1", "--save-session=talk"}), 1);
  EXPECT_THAT(err_, HasSubstr(path + ": the file that is there has no write permission"));
  EXPECT_EQ(out_, "");
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  ASSERT_EQ(Generate({store, "--prompt-ids=1,2,3", "--max-tokens=2", "--save-session=talk"}), 0) << err_;
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(GenerateSessionTest, AStoresFilesAreWrittenByTheStoreAlone) {
  const std::string store = Path("store"), session = store + "/sessions/talk.kvmstate";
  ASSERT_EQ(Generate({"--store=" + store, "--prompt-ids=1,2,3", "--max-tokens=1", "--save-session=talk"}), 0) << err_;
  const std::string before = ReadAll(session);
  ASSERT_EQ(symlink(session.c_str(), Path("link").c_str()), 0);
  for (const std::string& out : {session, store + "/sessions/new.kvmstate", store + "/snapshots/1-0.kvmstate",
                                 store + "/lock", store + "/pins", Path("link")}) {
    EXPECT_EQ(Generate({"--prompt-ids=1", "--save-session=" + out}), 1) << out;
    EXPECT_THAT(err_, HasSubstr(out + " lies in the state store "));
  }
  EXPECT_EQ(ReadAll(session), before);
  ASSERT_EQ(Generate({"--session=" + session, "--max-tokens=1", "--save-session=" + store + "/mine"}), 0) << err_;
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
  EXPECT_THAT(
      err_, AllOf(HasSubstr("is of state dtype F32, the loaded model is of BF16"), HasSubstr(": give --state=f32\n")));

  ASSERT_EQ(Generate({store, "--prompt-ids=1,2,3", "--max-tokens=5", "--save-session=talk"}), 0) << err_;
  EXPECT_EQ(Generate({store, "--session=talk"}, "kvm_sqrt"), 1);
  EXPECT_THAT(err_, ::testing::ContainsRegex(both));
  EXPECT_EQ(Generate({store, "--prompt-ids=1", "--save-session=talk"}, "kvm_sqrt"), 1);  // its name is taken
  EXPECT_THAT(err_, ::testing::ContainsRegex(both));
  EXPECT_THAT(err_, HasSubstr("first kvm session drop talk\n"));
  EXPECT_EQ(out_, "");
}

TEST_F(GenerateSessionTest, AllFlagsOfASessionAreNamed) {
  const std::string file = Path("talk"), store = "--store=" + Path("store");
  const std::vector<std::string> more = {"--prompt-ids=1,2,3", "--max-tokens=1",        "--weights=f32",
                                         "--state=int8",       "--chunked-recurrences", "--provenance"};
  std::vector<std::string> to_file = more, to_store = more;
  to_file.push_back("--save-session=" + file);
  to_store.insert(to_store.end(), {store, "--save-session=talk"});
  ASSERT_EQ(Generate(to_file), 0) << err_;
  ASSERT_EQ(Generate(to_store), 0) << err_;
  const auto all = HasSubstr(": give --weights=f32 --state=int8 --chunked-recurrences --provenance\n");
  EXPECT_EQ(Generate({"--session=" + file}), 1);
  EXPECT_THAT(err_, all);
  EXPECT_EQ(Generate({store, "--session=talk"}), 1);
  EXPECT_THAT(err_, all);
  EXPECT_EQ(Run({"session", "save", "new", store, "--from=" + file, "--model=" + Golden("kvm_rwkv7_hybrid")}), 1);
  EXPECT_THAT(err_, all);
  EXPECT_EQ(Run({"session", "restore", "talk", store, "--out=" + Path("out"), "--position=1",
                 "--model=" + Golden("kvm_rwkv7_hybrid")}),
            1);
  EXPECT_THAT(err_, all);
  // The other way round.
  ASSERT_EQ(Generate({"--prompt-ids=1,2,3", "--max-tokens=1", "--save-session=" + Path("plain")}), 0) << err_;
  EXPECT_EQ(Generate({"--session=" + Path("plain"), "--chunked-recurrences", "--provenance", "--state=bf16"}), 1);
  EXPECT_THAT(err_, HasSubstr(": give --state=f32 --nochunked-recurrences --noprovenance\n"));
}

// Tokens "a" to "t" and an end of the text; the rest of the model's 64 are padding.
std::string SmallTokenizer() {
  std::string vocabulary;
  for (int i = 0; i < 20; ++i) {
    vocabulary += std::string(i == 0 ? "" : ", ") + '"' + static_cast<char>('a' + i) + "\": " + std::to_string(i);
  }
  return R"({"model": {"type": "BPE", "vocab": {)" + vocabulary + R"(}, "merges": []},
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"},
      "added_tokens": [{"id": 20, "content": "<|endoftext|>", "special": true}]})";
}

TEST_F(GenerateSessionTest, IdsWithATokenizerDrawWhatTextDraws) {
  WriteAll(Path("tokenizer.json"), SmallTokenizer());
  const std::string tokenizer = "--tokenizer=" + Path("tokenizer.json"), file = "--save-session=" + Path("talk");
  const auto begin = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {tokenizer, "--prompt-ids=1,2,3", "--seed=3"});
    return Generate(more);
  };
  ASSERT_EQ(begin({"--max-tokens=12"}), 0) << err_;
  const std::string whole = Line();
  std::string text;
  std::istringstream ids(whole);
  for (int id; ids >> id; text += static_cast<char>('a' + id)) ASSERT_LT(id, 20) << whole;
  ASSERT_EQ(text.size(), 12u);

  ASSERT_EQ(begin({"--max-tokens=1", file}), 0) << err_;
  const std::string first = Line();
  ASSERT_EQ(Generate({tokenizer, "--session=" + Path("talk"), "--prompt-ids=", "--max-tokens=11"}), 0) << err_;
  EXPECT_EQ(first + " " + Line(), whole);
  ASSERT_EQ(Generate({tokenizer, "--session=" + Path("talk"), "--max-tokens=11"}), 0) << err_;
  EXPECT_EQ(Line(), text.substr(1));
  // Ids, too, end where the text does.
  ASSERT_EQ(begin({"--max-tokens=1000"}), 0) << err_;
  EXPECT_THAT(err_, Not(HasSubstr("generated: 1,000")));
}

TEST_F(GenerateSessionTest, ATokenizerThatCannotBeUsedIsNotNeededForIds) {
  const std::string whole = AtOnce("1,2,3");
  ASSERT_EQ(Run({"convert", Golden("kvm_rwkv7_hybrid"), Path("m.kvm")}), 0) << err_;
  WriteAll(Path("m.tokenizer.json"), "{}");
  ASSERT_EQ(Run({"generate", "--model=" + Path("m.kvm"), "--prompt-ids=1,2,3", "--max-tokens=40", "--seed=3"}), 0);
  EXPECT_EQ(Line(), whole);
  EXPECT_THAT(err_, HasSubstr("note: the tokenizer cannot be used, so that every token may be drawn: "));
  EXPECT_EQ(Generate({"--prompt-ids=1", "--tokenizer=" + Path("m.tokenizer.json")}), 1);
}

TEST_F(GenerateSessionTest, OnlyASnapshotIsReplacedByAFile) {
  WriteAll(Path("notes.txt"), "mine");
  WriteAll(Path("tokenizer.json"), SmallTokenizer());
  ASSERT_EQ(Run({"convert", Golden("kvm_rwkv7_hybrid"), Path("m.kvm")}), 0) << err_;
  const auto save = [&](const std::string& path) { return "--save-session=" + path; };
  EXPECT_EQ(Generate({"--prompt-ids=1", save(Path("notes.txt"))}), 1);
  EXPECT_THAT(err_, HasSubstr(Path("notes.txt") + ": exists already and is no snapshot"));
  EXPECT_EQ(ReadAll(Path("notes.txt")), "mine");
  const std::string tokenizer = "--tokenizer=" + Path("tokenizer.json");
  EXPECT_EQ(Generate({tokenizer, "--prompt-ids=1", save(Path("tokenizer.json"))}), 2);
  EXPECT_THAT(err_, HasSubstr("--save-session and --tokenizer are the same file"));
  EXPECT_EQ(Generate({tokenizer, "--prompt-file=" + Path("notes.txt"), save(Path("notes.txt"))}), 2);
  EXPECT_THAT(err_, HasSubstr("--save-session and --prompt-file are the same file"));
  for (const char* file : {"m.kvm", "m.tokenizer.json"}) {  // the second would be read if it were there
    EXPECT_EQ(Run({"generate", "--model=" + Path("m.kvm"), "--prompt-ids=1", save(Path(file))}), 2);
    EXPECT_THAT(err_, HasSubstr(Path(file) + " is a file of --model=" + Path("m.kvm")));
  }
  EXPECT_EQ(out_, "");
  ASSERT_EQ(Generate({"--prompt-ids=1", "--max-tokens=1", save(Path("talk"))}), 0) << err_;
  const std::string before = ReadAll(Path("talk"));
  ASSERT_EQ(Generate({"--prompt-ids=1", "--max-tokens=2", save(Path("talk"))}), 0) << err_;
  EXPECT_NE(ReadAll(Path("talk")), before);
}

TEST_F(GenerateSessionTest, ADamagedSessionIsReplaced) {
  const std::string store = "--store=" + Path("store"), path = Path("store") + "/sessions/talk.kvmstate";
  const std::vector<std::string> save = {store, "--prompt-ids=1,2,3", "--max-tokens=3", "--save-session=talk"};
  ASSERT_EQ(Generate(save), 0) << err_;
  const std::string good = ReadAll(path);
  int damaged = 0;
  for (const size_t at : {size_t{40}, good.size() - 1}) {  // in the header, and where only reading all of it shows it
    std::string bad = good;
    bad[at] ^= 1;
    WriteAll(path, bad);
    ASSERT_EQ(Generate(save), 0) << err_;
    const std::string aside = path + (++damaged == 1 ? ".damaged" : ".damaged.2");
    EXPECT_THAT(err_, AllOf(HasSubstr("note: " + path), HasSubstr("; moved to " + aside + "\n")));
    EXPECT_THAT(err_, HasSubstr("saved talk: 6 tokens\n"));
    EXPECT_EQ(ReadAll(path), good);
    EXPECT_EQ(ReadAll(aside), bad);
  }
}

TEST_F(GenerateSessionTest, NamesInAFolderReachNoTerminalAsTheyAre) {
  const std::string store = "--store=" + Path("store");
  ASSERT_EQ(Generate({store, "--prompt-ids=1", "--max-tokens=1", "--save-session=talk"}), 0) << err_;
  WriteAll(Path("store") + "/sessions/x\033[31my\nz.kvmstate", "");
  for (const bool lists : {false, true}) {
    ASSERT_EQ(lists ? Run({"session", "list", store}) : Generate({store, "--prompt-ids=1", "--max-tokens=1"}), 0)
        << err_;
    EXPECT_THAT(err_, HasSubstr("note: " + Path("store") + "/sessions/x\\x1b[31my\\x0az.kvmstate: "));
    EXPECT_EQ((out_ + err_).find('\033'), std::string::npos);
  }
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

TEST_F(GenerateSessionTest, CtrlCInThePromptKeepsWhatWasReadForTheNextTime) {
  const std::string whole = AtOnce(Ids(1300)), store = "--store=" + Path("store");
  const std::vector<std::string> args = {store, "--prompt-ids=" + Ids(1300), "--max-tokens=40", "--seed=3"};
  // At the first question that comes when some of the prompt is in, however often is asked before.
  const auto interrupt_until = [&](const std::vector<std::string>& command, const std::string& says) {
    for (int at = 1; at < 100; ++at) {
      interrupted_ = false;
      interrupt_at_ = at;
      ASSERT_EQ(Run(command), 130) << err_;
      if (err_.find(says) != std::string::npos) break;
      EXPECT_FALSE(std::filesystem::exists(Path("store") + "/snapshots")) << "nothing was kept of nothing";
    }
    EXPECT_THAT(err_, HasSubstr(says));
    interrupt_at_ = 0;
  };
  std::vector<std::string> command = {"generate", "--model=" + Golden("kvm_rwkv7_hybrid")};
  command.insert(command.end(), args.begin(), args.end());
  interrupt_until(command, "note: the first 512 tokens of the prompt are kept; the same command goes on from there");
  interrupted_ = true;
  EXPECT_EQ(Run({"session", "save", "doc", store, "--model=" + Golden("kvm_rwkv7_hybrid"), "--prompt-ids=1,2"}), 130);
  EXPECT_FALSE(Exists(Path("store") + "/sessions/doc.kvmstate"));
  interrupted_ = false;
  ASSERT_EQ(Generate(args), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("1,300 tokens, 512 of them reused"));
  EXPECT_EQ(Line(), whole);
}

TEST_F(GenerateSessionTest, ProvenanceChangesNoTokenAndIsPartOfTheSession) {
  const std::string whole = AtOnce(Ids(100)), talk = Path("talk");
  ASSERT_EQ(
      Generate({"--prompt-ids=" + Ids(100), "--max-tokens=15", "--seed=3", "--provenance", "--save-session=" + talk}),
      0)
      << err_;
  const std::string first = Line();
  EXPECT_EQ(Generate({"--session=" + talk, "--max-tokens=25"}), 1);
  EXPECT_THAT(err_, HasSubstr("is of a model with provenance, the loaded model is of one without"));
  ASSERT_EQ(Generate({"--session=" + talk, "--max-tokens=25", "--provenance"}), 0) << err_;
  EXPECT_EQ(first + " " + Line(), whole);
}

TEST_F(GenerateSessionTest, WithoutAStoreNothingIsSaidOfReuse) {
  ASSERT_EQ(Generate({"--prompt-ids=1,2,3", "--max-tokens=2"}), 0) << err_;
  EXPECT_THAT(err_, AllOf(Not(HasSubstr("reused")), Not(HasSubstr("session"))));
}

}  // namespace
}  // namespace kvm
