#include "kvm/io/tokenizer/patterns/pre_tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tokenizer/patterns/unicode.h"

namespace kvm {
namespace {

// True when a place joins the one before it; `match` and `before` say which of the two the pattern matches.
bool Joins(SplitBehavior behavior, bool match, bool before) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
    case SplitBehavior::kRemoved:
      return false;
    case SplitBehavior::kMergedWithPrevious:
      return match && !before;
    case SplitBehavior::kMergedWithNext:
      return !match && before;
    case SplitBehavior::kContiguous:
      return match == before;
  }
  return false;
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::Create(const std::vector<SplitStep>& steps) {
  PreTokenizer result;
  for (const SplitStep& step : steps) {
    result.steps_.push_back({step, result.patterns_.size()});
    if (step.add_prefix_space) continue;
    absl::StatusOr<SplitPattern> pattern = SplitPattern::Compile(step.pattern);
    if (!pattern.ok()) {
      return absl::Status(pattern.status().code(),
                          absl::StrCat("the pattern ", Quoted(step.pattern), " ", pattern.status().message()));
    }
    result.patterns_.push_back(*std::move(pattern));
  }
  return result;
}

PreTokenizer::Walk::Walk(const PreTokenizer& pre_tokenizer) : pre_tokenizer_(&pre_tokenizer) {
  for (const SplitPattern& pattern : pre_tokenizer.patterns_) matchers_.emplace_back(pattern);
}

absl::Status PreTokenizer::Walk::ForEachWord(absl::string_view text,
                                             absl::FunctionRef<absl::Status(absl::string_view)> use) {
  return Step(0, text, use);
}

absl::Status PreTokenizer::Walk::Step(size_t step, absl::string_view text,
                                      absl::FunctionRef<absl::Status(absl::string_view)> use) {
  if (text.empty()) return absl::OkStatus();
  if (step == pre_tokenizer_->steps_.size()) return use(text);
  if (!pre_tokenizer_->steps_[step].step.add_prefix_space) return Split(step, text, use);
  if (text[0] != ' ') {
    prefixed_.push_back(absl::StrCat(" ", text));
    text = prefixed_.back();
  }
  return Step(step + 1, text, use);
}

absl::Status PreTokenizer::Walk::Split(size_t index, absl::string_view text,
                                       absl::FunctionRef<absl::Status(absl::string_view)> use) {
  const SplitStep& step = pre_tokenizer_->steps_[index].step;
  SplitPattern::Matcher& matcher = matchers_[pre_tokenizer_->steps_[index].pattern];
  SplitPattern::Range word = {0, 0};  // what later places may still join
  bool word_is_match = false;
  const auto place = [&](size_t begin, size_t end, bool match) -> absl::Status {
    match = match != step.invert;
    const bool joins = Joins(step.behavior, match, word_is_match);
    word_is_match = match;
    if (joins) {
      word.end = end;
      return absl::OkStatus();
    }
    const SplitPattern::Range finished = word;
    const bool removed = match && step.behavior == SplitBehavior::kRemoved;
    word = removed ? SplitPattern::Range{end, end} : SplitPattern::Range{begin, end};
    return Step(index + 1, text.substr(finished.begin, finished.end - finished.begin), use);
  };

  size_t done = 0;
  size_t from = 0;
  bool any = false;  // a match so far
  while (from <= text.size()) {
    SplitPattern::Range match;
    ASSIGN_OR_RETURN(const bool found, matcher.Find(text, from, &match));
    if (!found) break;
    // A match of nothing where the last one ended is none.
    if (match.begin == match.end && any && match.end == done) {
      from = done + (done < text.size() ? FirstCharacter(text.substr(done)).length : 1);
      continue;
    }
    if (done < match.begin) RETURN_IF_ERROR(place(done, match.begin, false));
    RETURN_IF_ERROR(place(match.begin, match.end, true));
    done = from = match.end;
    any = true;
  }
  if (done < text.size()) RETURN_IF_ERROR(place(done, text.size(), false));
  return Step(index + 1, text.substr(word.begin, word.end - word.begin), use);
}

}  // namespace kvm
