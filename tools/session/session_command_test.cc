#include "tools/session/session_command.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
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

std::string Ids(int count) {
  std::string ids;
  for (int i = 0; i < count; ++i) ids += (i == 0 ? "" : ",") + std::to_string((i * i * 7 + i * 3) % 61);
  return ids;
}

class SessionCommandTest : public CommandFixture {
 protected:
  // kvm session ARGS --store=...
  int Session(std::vector<std::string> args) {
    args.insert(args.begin(), "session");
    args.push_back("--store=" + Path("store"));
    return Run(args);
  }
  // The same with a model.
  int SessionOf(std::vector<std::string> args, const std::string& model = "kvm_rwkv7_hybrid") {
    args.push_back("--model=" + Golden(model));
    args.push_back("--threads=1");
    return Session(args);
  }
  std::string FileOf(const std::string& name) { return Path("store") + "/sessions/" + name + ".kvmstate"; }

  nlohmann::json List() {
    EXPECT_EQ(Session({"list", "--json"}), 0) << err_;
    return nlohmann::json::parse(out_);
  }
};

TEST_F(SessionCommandTest, SavesAndLists) {
  ASSERT_EQ(SessionOf({"save", "doc", "--prompt-ids=" + Ids(1100)}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("saved doc: 1,100 tokens, 0 of them reused"));
  ASSERT_EQ(SessionOf({"save", "longer", "--prompt-ids=" + Ids(1200)}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("saved longer: 1,200 tokens, 1,100 of them reused"));
  ASSERT_EQ(SessionOf({"save", "shorter", "--prompt-ids=" + Ids(600)}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("saved shorter: 600 tokens, 512 of them reused"));

  const nlohmann::json list = List();
  ASSERT_EQ(list["sessions"].size(), 3u);
  EXPECT_EQ(list["snapshots"], 2);
  const nlohmann::json& doc = list["sessions"][0];
  EXPECT_EQ(doc["name"], "doc");
  EXPECT_EQ(doc["position"], 1100);
  EXPECT_EQ(doc["bytes"], std::filesystem::file_size(FileOf("doc")));
  EXPECT_EQ(doc["file"], FileOf("doc"));
  EXPECT_EQ(doc["state"], "F32");
  EXPECT_GT(doc["rows"], 8);
  ASSERT_EQ(Session({"list"}), 0);
  EXPECT_THAT(out_, AllOf(HasSubstr("shorter     600  "), HasSubstr("3 sessions, 2 snapshots")));
}

TEST_F(SessionCommandTest, NothingIsReplaced) {
  ASSERT_EQ(SessionOf({"save", "doc", "--prompt-ids=1,2,3"}), 0) << err_;
  const std::string before = ReadAll(FileOf("doc"));
  EXPECT_EQ(SessionOf({"save", "doc", "--prompt-ids=4,5"}), 1);
  EXPECT_THAT(
      err_, AllOf(HasSubstr("there is a session \"doc\" already"), HasSubstr("choose another name or drop it first")));
  EXPECT_EQ(Session({"save", "doc", "--from=" + FileOf("doc")}), 1);
  EXPECT_THAT(err_, HasSubstr("there is a session \"doc\" already"));
  EXPECT_EQ(ReadAll(FileOf("doc")), before);
}

TEST_F(SessionCommandTest, RestoringReplacesNothing) {
  ASSERT_EQ(SessionOf({"save", "doc", "--prompt-ids=1,2,3"}), 0) << err_;
  ASSERT_EQ(Session({"fork", "doc", "copy"}), 0) << err_;
  WriteAll(Path("notes.txt"), "mine");
  const std::string stored = ReadAll(FileOf("copy"));
  for (const char* position : {"--position=3", "--position=2"}) {
    EXPECT_EQ(SessionOf({"restore", "doc", position, "--out=" + Path("notes.txt")}), 1);
    EXPECT_THAT(err_, HasSubstr(Path("notes.txt") + ": exists already"));
    for (const std::string& inside : {FileOf("copy"), FileOf("new"), Path("store") + "/lock"}) {
      EXPECT_EQ(SessionOf({"restore", "doc", position, "--out=" + inside}), 1);
      EXPECT_THAT(err_, HasSubstr("--out=" + inside + " lies in the folder of the store"));
    }
  }
  EXPECT_EQ(ReadAll(Path("notes.txt")), "mine");
  EXPECT_EQ(ReadAll(FileOf("copy")), stored);
  EXPECT_FALSE(Exists(FileOf("new")));
}

TEST_F(SessionCommandTest, AFolderThatCannotBeSeenIsNoMissingStore) {
  std::filesystem::create_symlink(Path("store"), Path("store"));  // in a circle
  EXPECT_EQ(Session({"list"}), 1);
  EXPECT_THAT(err_,
              AllOf(HasSubstr("cannot look into the state store " + Path("store")), Not(HasSubstr("expected a"))));
}

TEST_F(SessionCommandTest, ForksAndDropsWithoutAModel) {
  ASSERT_EQ(SessionOf({"save", "doc", "--prompt-ids=1,2,3"}), 0) << err_;
  ASSERT_EQ(Session({"fork", "doc", "copy"}), 0) << err_;
  EXPECT_EQ(ReadAll(FileOf("copy")), ReadAll(FileOf("doc")));
  EXPECT_EQ(Session({"fork", "doc", "copy"}), 1);
  EXPECT_THAT(err_, HasSubstr("there is a session \"copy\" already"));
  EXPECT_EQ(Session({"drop", "doc", "coppy"}), 1);
  EXPECT_THAT(err_, HasSubstr("no session \"coppy\" in the store; did you mean copy?"));
  EXPECT_TRUE(Exists(FileOf("doc")));  // all or none
  ASSERT_EQ(Session({"drop", "doc", "copy", "doc"}), 0) << err_;
  EXPECT_EQ(out_, "dropped doc\ndropped copy\n");
  EXPECT_TRUE(List()["sessions"].empty());
}

TEST_F(SessionCommandTest, SnapshotFilesGoInAndOut) {
  const std::string file = Path("talk.kvmstate");
  ASSERT_EQ(SessionOf({"save", "doc", "--prompt-ids=1,2,3"}), 0) << err_;
  ASSERT_EQ(Session({"restore", "doc", "--out=" + file}), 0) << err_;
  EXPECT_EQ(ReadAll(file), ReadAll(FileOf("doc")));
  ASSERT_EQ(Session({"save", "again", "--from=" + file}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("saved again: 3 tokens from "));
  EXPECT_EQ(ReadAll(FileOf("again")), ReadAll(file));
  EXPECT_EQ(SessionOf({"save", "other", "--from=" + file}, "kvm_sqrt"), 1);
  EXPECT_THAT(err_, ::testing::ContainsRegex("fingerprint [0-9a-f]+, the loaded model is of [0-9a-f]+"));
  WriteAll(file, "no snapshot");
  EXPECT_EQ(Session({"save", "other", "--from=" + file}), 1);
  EXPECT_THAT(err_, HasSubstr(file));
  EXPECT_FALSE(Exists(FileOf("other")));
}

TEST_F(SessionCommandTest, RestoresAnyPosition) {
  ASSERT_EQ(SessionOf({"save", "doc", "--prompt-ids=" + Ids(1100)}), 0) << err_;
  const std::string stored = ReadAll(FileOf("doc"));
  for (const auto& [position, says] : {std::make_pair(700, "from the snapshot at 512, 188 tokens read again"),
                                       std::make_pair(512, "from the snapshot at 512, 0 tokens read again"),
                                       std::make_pair(100, "from the beginning, 100 tokens read again")}) {
    const std::string file = Path("at" + std::to_string(position));
    ASSERT_EQ(SessionOf({"restore", "doc", "--out=" + file, "--position=" + std::to_string(position)}), 0) << err_;
    EXPECT_THAT(out_, HasSubstr(says));
    // Read in one go by a model with no store.
    ASSERT_EQ(Run({"session", "save", "at", "--store=" + Path("fresh" + std::to_string(position)),
                   "--model=" + Golden("kvm_rwkv7_hybrid"), "--prompt-ids=" + Ids(position)}),
              0)
        << err_;
    EXPECT_EQ(ReadAll(file), ReadAll(Path("fresh" + std::to_string(position)) + "/sessions/at.kvmstate")) << position;
  }
  EXPECT_EQ(ReadAll(FileOf("doc")), stored);
  std::string file = Path("end");
  ASSERT_EQ(Session({"restore", "doc", "--out=" + file, "--position=1100"}), 0) << err_;  // needs no model
  EXPECT_EQ(ReadAll(file), stored);
  file = Path("other");
  EXPECT_EQ(SessionOf({"restore", "doc", "--out=" + file, "--position=1101"}), 1);
  EXPECT_THAT(err_, HasSubstr("doc: cannot go back to position 1101: expected 1 to 1100"));
  EXPECT_EQ(SessionOf({"restore", "doc", "--out=" + file, "--position=9"}, "kvm_sqrt"), 1);
  EXPECT_THAT(err_, HasSubstr("is of another model: fingerprint"));
  EXPECT_EQ(Session({"restore", "doc", "--out=" + file, "--position=9"}), 2);
  EXPECT_THAT(err_, HasSubstr("--model is missing"));
}

TEST_F(SessionCommandTest, DamagedFilesAreReportedAndCanBeDropped) {
  ASSERT_EQ(SessionOf({"save", "good", "--prompt-ids=1,2,3"}), 0) << err_;
  ASSERT_EQ(Session({"fork", "good", "bad"}), 0) << err_;
  ASSERT_EQ(Session({"fork", "good", "worse"}), 0) << err_;
  std::string bytes = ReadAll(FileOf("bad"));
  bytes[40] ^= 1;  // the header
  WriteAll(FileOf("bad"), bytes);
  bytes = ReadAll(FileOf("worse"));
  bytes.back() ^= 1;  // the last section
  WriteAll(FileOf("worse"), bytes);

  const nlohmann::json list = List();
  EXPECT_THAT(err_, HasSubstr("note: " + FileOf("bad")));
  EXPECT_EQ(list["sessions"].size(), 2u);
  ASSERT_EQ(list["unreadable"].size(), 1u);
  EXPECT_EQ(list["unreadable"][0]["file"], FileOf("bad"));
  EXPECT_EQ(Session({"fork", "worse", "copy"}), 1);
  EXPECT_THAT(err_, HasSubstr(FileOf("worse")));
  EXPECT_FALSE(Exists(FileOf("copy")));
  ASSERT_EQ(Session({"drop", "worse"}), 0) << err_;
  // A command with the model goes on without it, too.
  ASSERT_EQ(SessionOf({"save", "next", "--prompt-ids=1,2,3,4"}), 0) << err_;
  EXPECT_THAT(err_, AllOf(HasSubstr("note: " + FileOf("bad")), HasSubstr("; moved to ")));
  EXPECT_THAT(out_, HasSubstr("4 tokens, 3 of them reused"));
}

TEST_F(SessionCommandTest, DamagedFilesThatWereSetAsideAreNamedAndCanBeDropped) {
  ASSERT_EQ(SessionOf({"save", "good", "--prompt-ids=1,2,3"}), 0) << err_;
  const std::string bad = FileOf("bad") + ".damaged";
  const std::string snapshot = Path("store") + "/snapshots/1-00.kvmstate.damaged";
  WriteAll(bad, "1");
  WriteAll(bad + ".2", "2");
  WriteAll(FileOf("good") + ".damaged", "3");
  WriteAll(snapshot, "4");
  const nlohmann::json list = List();
  EXPECT_THAT(err_,
              AllOf(HasSubstr("note: " + bad + ": was damaged"), HasSubstr("note: " + bad + ".2: was damaged"),
                    HasSubstr("kvm session drop bad deletes it"),
                    HasSubstr("note: " + snapshot + ": was damaged and set aside; kvm session drop --snapshots")));
  EXPECT_EQ(list["unreadable"].size(), 4u);
  EXPECT_EQ(Session({"fork", "bad", "copy"}), 1);
  EXPECT_THAT(err_, HasSubstr(bad + ": was damaged"));

  ASSERT_EQ(Session({"drop", "bad"}), 0) << err_;
  EXPECT_FALSE(Exists(bad) || Exists(bad + ".2"));
  EXPECT_EQ(Session({"drop", "bad"}), 1);
  EXPECT_THAT(err_, HasSubstr("no session \"bad\""));
  ASSERT_EQ(Session({"drop", "--snapshots"}), 0) << err_;
  EXPECT_FALSE(Exists(snapshot));
  ASSERT_EQ(Session({"drop", "good"}), 0) << err_;
  EXPECT_FALSE(Exists(FileOf("good")) || Exists(FileOf("good") + ".damaged"));
  EXPECT_EQ(List()["unreadable"].size(), 0u);
}

TEST_F(SessionCommandTest, ANameIsTakenOrItIsNot) {
  ASSERT_EQ(SessionOf({"save", "doc", "--prompt-ids=1,2,3"}), 0) << err_;
  ASSERT_EQ(mkfifo(FileOf("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("nowhere", FileOf("link"));
  std::filesystem::create_directory(FileOf("folder"));
  EXPECT_EQ(List()["unreadable"].size(), 3u);
  for (const char* const name : {"pipe", "link", "folder"}) {
    EXPECT_THAT(err_, HasSubstr("note: " + FileOf(name) + ": a "));
  }
  for (const std::string name : {"pipe", "link", "folder"}) {
    EXPECT_EQ(SessionOf({"save", name, "--prompt-ids=1"}), 1);
    EXPECT_THAT(err_, HasSubstr("there is a session \"" + name + "\" already"));
    EXPECT_EQ(Session({"fork", "doc", name}), 1);
    EXPECT_THAT(err_, HasSubstr("there is a session \"" + name + "\" already"));
    EXPECT_EQ(Session({"fork", name, "copy"}), 1);
    EXPECT_THAT(err_, HasSubstr(FileOf(name) + ": a "));
  }
  for (const std::string name : {"pipe", "link"}) {
    EXPECT_EQ(Session({"drop", name}), 0) << err_;
    EXPECT_EQ(Session({"fork", "doc", name}), 0) << err_;
  }
  EXPECT_EQ(Session({"drop", "folder"}), 1);
  EXPECT_THAT(err_, HasSubstr(FileOf("folder") + ": a folder; expected a file; it is not the store's to delete"));
}

TEST_F(SessionCommandTest, AStoreInUseIsRefusedWithItsProcess) {
  const auto folder = StoreFolder::Open(Path("store"));
  ASSERT_TRUE(folder.ok()) << folder.status();
  const std::string says = "is in use by process " + std::to_string(getpid());
  EXPECT_EQ(Session({"list"}), 1);
  EXPECT_THAT(err_, HasSubstr(says));
  EXPECT_EQ(Session({"drop", "a"}), 1);
  EXPECT_THAT(err_, HasSubstr(says));
  EXPECT_EQ(SessionOf({"save", "a", "--prompt-ids=1"}), 1);
  EXPECT_THAT(err_, HasSubstr(says));
}

TEST_F(SessionCommandTest, LookingMakesNoStore) {
  EXPECT_EQ(Session({"list"}), 1);
  EXPECT_THAT(err_, HasSubstr(Path("store") + ": no state store"));
  EXPECT_EQ(Session({"restore", "a", "--out=" + Path("out")}), 1);
  EXPECT_FALSE(std::filesystem::exists(Path("store")));
}

TEST_F(SessionCommandTest, AStateWithNanIsNotSavedAndItsLayerIsNamed) {
  const std::string model = Path("m.safetensors");
  ASSERT_EQ(Run({"convert", Golden("kvm_sqrt"), model}), 0) << err_;
  Poison(model, "transformer.h.1.attn.c_v.weight");
  EXPECT_EQ(Session({"save", "doc", "--model=" + model, "--prompt-ids=1,2,3"}), 1);
  EXPECT_THAT(err_,
              AllOf(HasSubstr("doc.kvmstate: layer 1: state tensor layer.1.mixer."), HasSubstr(" is NaN or infinite")));
  EXPECT_FALSE(std::filesystem::exists(Path("store")));
}

TEST_F(SessionCommandTest, CtrlCSavesNothing) {
  interrupted_ = true;
  EXPECT_EQ(SessionOf({"save", "doc", "--prompt-ids=" + Ids(1100)}), 130);
  EXPECT_FALSE(Exists(FileOf("doc")));
}

TEST_F(SessionCommandTest, ExplainsItself) {
  EXPECT_EQ(Run({"help", "session"}), 0);
  EXPECT_THAT(out_, AllOf(HasSubstr("  restore  writes"), HasSubstr("  drop     deletes")));
  EXPECT_EQ(Run({"session", "restore", "--help"}), 0);
  const std::string help = out_;
  EXPECT_EQ(Run({"help", "session", "restore"}), 0);
  EXPECT_EQ(out_, help);
  EXPECT_EQ(Run({"session", "help", "restore"}), 0);
  EXPECT_EQ(out_, help);
  EXPECT_THAT(out_, HasSubstr("usage: kvm session restore NAME"));
  EXPECT_EQ(Run({"session", "lst"}), 2);
  EXPECT_THAT(err_, HasSubstr("did you mean kvm session list?"));
  EXPECT_EQ(Run({"session"}), 2);
  EXPECT_EQ(Run({"session", "list"}), 2);
  EXPECT_THAT(err_, HasSubstr("--store is missing"));
  EXPECT_EQ(Session({"save", "a"}), 2);
  EXPECT_THAT(err_, HasSubstr("give a prompt or --from"));
  EXPECT_EQ(Session({"save", "a", "--prompt-ids="}), 2);
  EXPECT_THAT(err_, HasSubstr("--prompt-ids is empty"));
  EXPECT_EQ(Session({"save", "a b", "--prompt-ids=1"}), 1);
  EXPECT_THAT(err_, HasSubstr("session name \"a b\""));
  EXPECT_EQ(Session({"restore", "a"}), 2);
  EXPECT_EQ(Session({"fork", "a"}), 2);
  EXPECT_EQ(Session({"drop"}), 2);
}

}  // namespace
}  // namespace kvm
