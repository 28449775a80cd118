#include "tools/stop_filter.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace kvm {

StopFilter::StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
  stops_.erase(std::remove(stops_.begin(), stops_.end(), ""), stops_.end());
}

std::string StopFilter::Add(absl::string_view text) {
  if (stopped_) return "";
  absl::StrAppend(&held_, text);
  size_t end = held_.size();
  for (const std::string& stop : stops_) {
    const size_t found = held_.find(stop);
    if (found != std::string::npos) {
      stopped_ = true;
      end = std::min(end, found);
    }
  }
  if (stopped_) {
    held_.resize(end);
    return std::exchange(held_, "");
  }
  // The longest end of the text that begins a stop string.
  size_t begin = held_.size();
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > 0; --length) {
      if (absl::EndsWith(held_, absl::string_view(stop).substr(0, length))) {
        begin = std::min(begin, held_.size() - length);
        break;
      }
    }
  }
  std::string certain = held_.substr(0, begin);
  held_.erase(0, begin);
  return certain;
}

std::string StopFilter::Finish() { return std::exchange(held_, ""); }

}  // namespace kvm
