#include "tools/cli/progress.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tools/cli/format.h"

namespace kvm {
namespace {

constexpr absl::Duration kFirst = absl::Seconds(1);
constexpr absl::Duration kOnTerminal = absl::Milliseconds(100);
constexpr absl::Duration kElsewhere = absl::Seconds(10);
// Returns to the line's beginning and clears it.
constexpr char kClearLine[] = "\r\x1b[K";

}  // namespace

Progress::Progress(Console& console, std::string what, std::string unit, int64_t total)
    : console_(console),
      what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      start_(absl::Now()),
      next_(start_ + (console.err_is_terminal ? kFirst : kElsewhere)) {}

void Progress::ClearLine() {
  if (line_is_open_) console_.err << kClearLine << std::flush;
  line_is_open_ = false;
}

void Progress::Update(int64_t done) {
  if (done >= total_) return ClearLine();
  const absl::Time now = absl::Now();
  if (now < next_ || done <= 0) return;
  next_ = now + (console_.err_is_terminal ? kOnTerminal : kElsewhere);
  const double rate = static_cast<double>(done) / absl::ToDoubleSeconds(now - start_);
  const std::string line =
      absl::StrCat(what_, ": ", FormatCount(done), " of ", FormatCount(total_), " ", unit_, ", ", FormatRate(rate), " ",
                   unit_, "/s, ", FormatSeconds(static_cast<double>(total_ - done) / rate), " left");
  if (console_.err_is_terminal) {
    console_.err << kClearLine << line << std::flush;
    line_is_open_ = true;
  } else {
    console_.err << line << std::endl;
  }
}

}  // namespace kvm
