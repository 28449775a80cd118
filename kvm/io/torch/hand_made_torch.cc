#include "kvm/io/torch/hand_made_torch.h"

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "kvm/io/torch/zip_writer.h"

namespace kvm {

void WriteZip(const std::string& path, const std::vector<std::pair<std::string, std::string>>& entries) {
  auto zip = ZipWriter::Create(path);
  CHECK(zip.ok()) << zip.status();
  for (const auto& [name, data] : entries) {
    const absl::Status added = zip->Add(name, data);
    CHECK(added.ok()) << added;
  }
  const absl::Status committed = zip->Commit();
  CHECK(committed.ok()) << committed;
}

std::string PickledText(const std::string& text) {
  return absl::StrCat("\x8c", std::string(1, static_cast<char>(text.size())), text);
}

std::string PickledInt(int64_t number) {
  std::string bytes = "\x8a\x08";
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(static_cast<uint64_t>(number) >> (8 * i) & 0xff));
  return bytes;
}

std::string PickledTuple(const std::vector<int64_t>& numbers) {
  std::string bytes = "(";
  for (const int64_t number : numbers) bytes += PickledInt(number);
  return bytes + "t";
}

std::string PickledStorage(const std::string& type, int64_t elements) {
  return absl::StrCat("(", PickledText("storage"), "c", type, "\n", PickledText("0"), PickledText("cpu"),
                      PickledInt(elements), "tQ");
}

}  // namespace kvm
