#include "tools/cli/flag_set.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kvm/base/nearest_name.h"
#include "kvm/base/status_macros.h"
#include "tools/cli/command_status.h"

namespace kvm {
namespace {

// Columns of help text before the explanation.
constexpr size_t kHelpIndent = 30;

// What was expected instead of `given`. A bound that nobody has in mind is named only to who went beyond it.
std::string RangeText(absl::string_view what, int64_t min, int64_t max, absl::string_view given) {
  const bool is_large = !given.empty() && std::all_of(given.begin(), given.end(), absl::ascii_isdigit);
  if (max == std::numeric_limits<int64_t>::max() && !is_large) return absl::StrCat(what, " of at least ", min);
  return absl::StrCat(what, " from ", min, " to ", max);
}

std::string RangeText(double min, double max, FlagSet::Ends ends) {
  const bool has_max = max < std::numeric_limits<double>::max();
  if (!has_max) return absl::StrCat("a finite number ", ends == FlagSet::Ends::kMax ? "above " : "of at least ", min);
  if (ends == FlagSet::Ends::kMax) return absl::StrCat("a number above ", min, " and at most ", max);
  if (ends == FlagSet::Ends::kMin) return absl::StrCat("a number of at least ", min, " and below ", max);
  return absl::StrCat("a number from ", min, " to ", max);
}

bool ParseInRange(absl::string_view text, int64_t min, int64_t max, int64_t* value) {
  int64_t number;
  if (!absl::SimpleAtoi(text, &number) || number < min || number > max) return false;
  *value = number;
  return true;
}

bool IsNegativeNumber(absl::string_view arg) { return arg.size() > 1 && arg[0] == '-' && absl::ascii_isdigit(arg[1]); }

}  // namespace

FlagSet::FlagSet(std::string command, std::string synopsis, std::string description)
    : command_(std::move(command)), synopsis_(std::move(synopsis)), description_(std::move(description)) {}

FlagSet::Flag& FlagSet::Add(const std::string& name, const std::string& placeholder, const std::string& help,
                            std::function<std::string(const std::string&)> set) {
  flags_.push_back({name, placeholder, help, "", "", std::move(set)});
  return flags_.back();
}

void FlagSet::String(const std::string& name, std::string* value, const std::string& placeholder,
                     const std::string& help) {
  Add(name, placeholder, help, [value](const std::string& text) {
    *value = text;
    return "";
  }).default_text = *value;
}

void FlagSet::Text(const std::string& name, std::string* value, const std::string& help) {
  String(name, value, "TEXT", help);
  flags_.back().may_be_empty = true;
}

void FlagSet::Strings(const std::string& name, std::vector<std::string>* values, const std::string& placeholder,
                      const std::string& help) {
  Add(name, placeholder, help, [values](const std::string& text) {
    values->push_back(text);
    return "";
  });
}

void FlagSet::Choice(const std::string& name, std::string* value, const std::vector<std::string>& choices,
                     const std::string& help) {
  Add(name, absl::StrJoin(choices, "|"), help, [value, choices](const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
      return absl::StrCat("one of ", absl::StrJoin(choices, ", "));
    }
    *value = text;
    return std::string();
  }).default_text = *value;
}

void FlagSet::Int64(const std::string& name, int64_t* value, int64_t min, int64_t max, const std::string& help) {
  Add(name, "N", help, [value, min, max](const std::string& text) {
    return ParseInRange(text, min, max, value) ? std::string() : RangeText("an integer", min, max, text);
  }).default_text = absl::StrCat(*value);
}

void FlagSet::Double(const std::string& name, double* value, double min, double max, const std::string& help,
                     Ends ends) {
  Add(name, "X", help, [value, min, max, ends](const std::string& text) {
    double number;
    // Written so that NaN is refused.
    const bool in_range = absl::SimpleAtod(text, &number) && number >= min && number <= max &&
                          !(number == min && ends == Ends::kMax) && !(number == max && ends == Ends::kMin);
    if (!in_range) return RangeText(min, max, ends);
    *value = number;
    return std::string();
  }).default_text = absl::StrCat(*value);
}

void FlagSet::Bool(const std::string& name, bool* value, const std::string& help) {
  Add(name, "", help, [value](const std::string& text) {
    return absl::SimpleAtob(text, value) ? "" : "true or false";
  }).default_text = *value ? "on" : "";
}

void FlagSet::Int64s(const std::string& name, std::vector<int64_t>* values, int64_t min, int64_t max,
                     const std::string& help) {
  Add(name, "N,N,...", help, [values, min, max](const std::string& text) {
    std::vector<int64_t> numbers;
    if (text.empty()) {
      values->clear();
      return std::string();
    }
    for (absl::string_view part : absl::StrSplit(text, ',')) {
      int64_t number;
      part = absl::StripAsciiWhitespace(part);
      if (!ParseInRange(part, min, max, &number)) {
        return absl::StrCat(RangeText("integers", min, max, part), ", separated by commas");
      }
      numbers.push_back(number);
    }
    *values = std::move(numbers);
    return std::string();
  }).default_text = absl::StrJoin(*values, ",");
}

void FlagSet::ReadFromEnvironment(const std::string& name, const std::string& variable) {
  Find(name)->variable = variable;
}

FlagSet::Flag* FlagSet::Find(absl::string_view name) {
  for (Flag& flag : flags_) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

absl::Status FlagSet::Wrong(absl::string_view message) const {
  return UsageError(absl::StrCat(message, " (see kvm help ", command_, ")"));
}

absl::Status FlagSet::UnknownFlag(absl::string_view name) const {
  std::vector<std::string> names = {"help"};
  for (const Flag& flag : flags_) names.push_back(flag.name);
  return Wrong(absl::StrCat("unknown flag --", name, DidYouMean(name, names, "--")));
}

absl::Status FlagSet::Set(Flag& flag, const std::string& value, const std::string& source) {
  if (value.empty() && !flag.may_be_empty) {
    return Wrong(absl::StrCat(source, " needs a value: ", source, "=",
                              flag.placeholder.empty() ? "true|false" : flag.placeholder));
  }
  const std::string expected = flag.set(value);
  if (!expected.empty()) return Wrong(absl::StrCat(source, "=", value, ": expected ", expected));
  flag.is_set = true;
  return absl::OkStatus();
}

absl::Status FlagSet::ParseFlag(absl::Span<const std::string> args, size_t* i) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(args[*i].substr(2), absl::MaxSplits('=', 1));
  const std::string& name = parts.first;
  const bool has_value = absl::StrContains(args[*i], '=');
  Flag* flag = Find(name);
  if (flag == nullptr && absl::StartsWith(name, "no") && !has_value) {
    Flag* negated = Find(name.substr(2));
    if (negated != nullptr && negated->placeholder.empty()) return Set(*negated, "false", "--" + name);
  }
  if (flag == nullptr) return UnknownFlag(name);
  if (has_value) return Set(*flag, parts.second, "--" + name);
  if (flag->placeholder.empty()) return Set(*flag, "true", "--" + name);
  if (*i + 1 == args.size() || absl::StartsWith(args[*i + 1], "--")) {
    return Wrong(absl::StrCat("--", name, " needs a value: --", name, "=", flag->placeholder));
  }
  return Set(*flag, args[++*i], "--" + name);
}

absl::Status FlagSet::Parse(absl::Span<const std::string> args) {
  bool flags_ended = false;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (!flags_ended && arg == "--") {
      flags_ended = true;
    } else if (!flags_ended && (arg == "--help" || arg == "-h")) {
      return HelpRequest(Help());
    } else if (!flags_ended && absl::StartsWith(arg, "--")) {
      RETURN_IF_ERROR(ParseFlag(args, &i));
    } else if (!flags_ended && arg.size() > 1 && arg[0] == '-' && !IsNegativeNumber(arg)) {
      return Wrong(absl::StrCat("unknown flag ", arg, "; flags begin with two dashes"));
    } else if (positionals_ == nullptr) {
      return Wrong(absl::StrCat("unexpected argument '", arg, "'"));
    } else {
      positionals_->push_back(arg);
    }
  }
  for (Flag& flag : flags_) {
    if (flag.variable.empty() || flag.is_set) continue;
    const char* value = std::getenv(flag.variable.c_str());
    if (value == nullptr || *value == '\0') continue;
    RETURN_IF_ERROR(Set(flag, value, flag.variable));
    flag.is_from_variable = true;
  }
  return absl::OkStatus();
}

bool FlagSet::IsSet(absl::string_view name) const {
  for (const Flag& flag : flags_) {
    if (flag.name == name) return flag.is_set;
  }
  return false;
}

bool FlagSet::IsFromEnvironment(absl::string_view name) const {
  for (const Flag& flag : flags_) {
    if (flag.name == name) return flag.is_from_variable;
  }
  return false;
}

std::string FlagSet::Source(absl::string_view name) const {
  for (const Flag& flag : flags_) {
    if (flag.name == name && flag.is_from_variable) return flag.variable;
  }
  return absl::StrCat("--", name);
}

std::string FlagSet::Help() const {
  std::string text =
      absl::StrCat("usage: kvm ", command_, synopsis_.empty() ? "" : " ", synopsis_, "\n\n", description_, "\n");
  if (!flags_.empty()) absl::StrAppend(&text, "\nflags:\n");
  for (const Flag& flag : flags_) {
    std::string left = flag.placeholder.empty() ? absl::StrCat("  --[no]", flag.name)
                                                : absl::StrCat("  --", flag.name, "=", flag.placeholder);
    if (left.size() + 2 > kHelpIndent)
      absl::StrAppend(&left, "\n", std::string(kHelpIndent, ' '));
    else
      left.resize(kHelpIndent, ' ');
    absl::StrAppend(&text, left, flag.help);
    if (!flag.default_text.empty()) absl::StrAppend(&text, " [", flag.default_text, "]");
    if (!flag.variable.empty()) absl::StrAppend(&text, " ($", flag.variable, ")");
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace kvm
