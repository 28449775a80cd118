// Text to ids and back, in bytes of text per second.
//
//   bazel run //kvm/io/tokenizer:tokenizer_benchmark -- --text=FILE /path/tokenizer.json /path/rwkv_vocab_v20230424.txt
//
// Without --text a made-up English-like text is used; it is kinder to caches than a real one.

#include <benchmark/benchmark.h>

#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/tokenizer/open_tokenizer.h"
#include "kvm/io/tokenizer/tokenizer.h"

namespace kvm {
namespace {

constexpr size_t kBytes = 5 << 20;

std::string MadeUpText() {
  std::mt19937 random(1);
  std::vector<std::string> words;
  for (int i = 0; i < 20000; ++i) {
    std::string word;
    for (uint32_t letters = 1 + random() % 10; letters > 0; --letters) word += static_cast<char>('a' + random() % 26);
    words.push_back(word);
  }
  std::string text;
  while (text.size() < kBytes) {
    // Some words are far more frequent than others.
    absl::StrAppend(&text, words[random() % (1 + random() % words.size())], random() % 12 == 0 ? ",\n" : " ");
  }
  return text;
}

std::string Repeat(const std::string& unit) {
  std::string text;
  while (text.size() < kBytes) text += unit;
  return text;
}

void Encode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  for (auto _ : state) {
    const absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(text);
    if (!ids.ok()) {
      state.SkipWithError(ids.status().ToString().c_str());
      return;
    }
    state.counters["tokens"] = static_cast<double>(ids->size());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

void StreamDecode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  const absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(text);
  if (!ids.ok()) {
    state.SkipWithError(ids.status().ToString().c_str());
    return;
  }
  for (auto _ : state) {
    StreamDecoder decoder(&tokenizer);
    for (int32_t id : *ids) benchmark::DoNotOptimize(decoder.Add(id));
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

int Main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::string text = MadeUpText();
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    absl::Status status;
    if (absl::StartsWith(argument, "--text=")) {
      absl::StatusOr<std::string> content = ReadFile(argument.substr(7));
      status = content.status();
      if (content.ok()) text = *std::move(content);
    } else {
      absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = OpenTokenizer(argument);
      status = tokenizer.status();
      if (tokenizer.ok()) {
        tokenizers.push_back(*std::move(tokenizer));
        names.push_back(argument);
      }
    }
    if (!status.ok()) {
      std::cerr << status << "\n";
      return 1;
    }
  }
  const std::pair<const char*, std::string> texts[] = {
      {"text", text},          {"letters", Repeat("a")},    {"spaces", Repeat(" ")},
      {"digits", Repeat("7")}, {"marks", Repeat("\u0301")}, {"emoji", Repeat("\U0001f469")}};
  for (size_t i = 0; i < tokenizers.size(); ++i) {
    const Tokenizer& tokenizer = *tokenizers[i];
    for (const auto& [name, content] : texts) {
      benchmark::RegisterBenchmark(absl::StrCat("Encode/", names[i], "/", name).c_str(), [&tokenizer,
                                                                                          &content = content](
                                                                                             benchmark::State& state) {
        Encode(state, tokenizer, content);
      })->Unit(benchmark::kMillisecond);
    }
    benchmark::RegisterBenchmark(absl::StrCat("StreamDecode/", names[i], "/text").c_str(),
                                 [&](benchmark::State& state) { StreamDecode(state, tokenizer, text); })
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace kvm

int main(int argc, char** argv) { return kvm::Main(argc, argv); }
