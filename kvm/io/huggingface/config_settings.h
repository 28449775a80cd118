#ifndef KVM_IO_HUGGINGFACE_CONFIG_SETTINGS_H_
#define KVM_IO_HUGGINGFACE_CONFIG_SETTINGS_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/io/json/json_fields.h"
#include "nlohmann/json.hpp"

namespace kvm {

// The settings of a config.json and who asked for them. Two mixers that want different values for one key are a
// problem.
class ConfigSettings {
 public:
  void Set(const std::string& key, nlohmann::json value, const std::string& who) {
    const auto [place, is_new] = owners_.emplace(key, who);
    if (is_new) {
      values_[key] = std::move(value);
    } else if (values_[key] != value) {
      problems_.push_back(absl::StrCat(key, " is one for all layers: ", place->second, " needs ",
                                       ShortJson(values_[key]), ", ", who, " ", ShortJson(value)));
    }
  }
  void AddProblem(std::string problem) { problems_.push_back(std::move(problem)); }

  const nlohmann::json& values() const { return values_; }
  absl::Status Check() const {
    if (problems_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("config.json cannot express this stack: ", absl::StrJoin(problems_, "; ")));
  }

 private:
  nlohmann::json values_ = nlohmann::json::object();
  std::map<std::string, std::string> owners_;
  std::vector<std::string> problems_;
};

}  // namespace kvm

#endif  // KVM_IO_HUGGINGFACE_CONFIG_SETTINGS_H_
