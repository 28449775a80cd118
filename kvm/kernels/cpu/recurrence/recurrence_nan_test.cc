// NaN in any input of recurrences and of what surrounds them.

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/recurrence/chunked_delta.h"
#include "kvm/kernels/cpu/recurrence/delta_rule.h"
#include "kvm/kernels/cpu/recurrence/short_convolution.h"
#include "kvm/kernels/cpu/recurrence/wkv7.h"
#include "kvm/kernels/cpu/vectors/poisoned_inputs_testing.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {
namespace {

using Inputs = std::vector<std::vector<float>>;

constexpr int64_t kTokens = 11;
constexpr int64_t kDim = 20;
constexpr int64_t kValues = 7;

MatrixView<float> Rows(std::vector<float>& x, int64_t cols) {
  return {x.data(), static_cast<int64_t>(x.size()) / cols, cols};
}

TEST(RecurrenceNanTest, Wkv7InBothForms) {
  for (const bool chunked : {false, true}) {
    std::vector<PoisonedInput> inputs;
    for (const char* name : {"r", "w", "k", "v", "kappa", "a"}) {
      inputs.push_back({name, kTokens, kDim, SeenIn::kLater});
    }
    inputs.push_back({"state", kDim, kDim, SeenIn::kAll});
    ExpectNanComesOut({chunked ? "ChunkedWkv7" : "Wkv7", inputs, kTokens, [=](Inputs in) {
                         ThreadPool pool(1);
                         std::vector<float> out(kTokens * kDim);
                         const auto view = [&](int i) { return Rows(in[i], kDim); };
                         for (float& x : in[4]) x *= 0.3f;  // κ of length 1 or less, without which states grow
                         const Wkv7Head head = {view(0), view(1), view(2),      view(3),
                                                view(4), view(5), in[6].data(), Rows(out, kDim)};
                         chunked ? ChunkedWkv7({&head, 1}, pool) : Wkv7({&head, 1}, pool);
                         return out;
                       }});
  }
}

TEST(RecurrenceNanTest, DeltaRuleInBothForms) {
  for (const bool chunked : {false, true}) {
    for (const int64_t decays : {int64_t{1}, kDim}) {
      ExpectNanComesOut({chunked ? "ChunkedDeltaRule" : "DeltaRule",
                         {{"q", kTokens, kDim, SeenIn::kRow},
                          {"k", kTokens, kDim, SeenIn::kLater},
                          {"v", kTokens, kValues, SeenIn::kLater},
                          {"decay", kTokens, decays, SeenIn::kLater},
                          {"beta", kTokens, 1, SeenIn::kLater},
                          {"state", kDim, kValues, SeenIn::kAll}},
                         kTokens,
                         [=](Inputs in) {
                           ThreadPool pool(1);
                           std::vector<float> out(kTokens * kValues);
                           for (float& x : in[1]) x *= 0.3f;
                           const DeltaRuleHead head = {Rows(in[0], kDim),   Rows(in[1], kDim), Rows(in[2], kValues),
                                                       Rows(in[3], decays), Rows(in[4], 1),    in[5].data(),
                                                       Rows(out, kValues)};
                           chunked ? ChunkedDeltaRule({&head, 1}, pool) : DeltaRule({&head, 1}, pool);
                           return out;
                         }});
    }
  }
}

TEST(RecurrenceNanTest, Wkv7KeysAndGates) {
  const PoisonedInput of_row = {"row", kTokens, kDim, SeenIn::kRow}, of_all = {"all", 1, kDim, SeenIn::kAll};
  ExpectNanComesOut({"Wkv7Keys", {of_row, of_row, of_all, of_all}, kTokens, [](Inputs in) {
                       std::vector<float> kappa(kTokens * kDim), out;
                       Wkv7Keys(Rows(in[0], kDim), Rows(in[1], kDim), in[2], in[3], 10, Rows(kappa, kDim));
                       for (int64_t i = 0; i < kTokens * kDim; ++i) out.push_back(in[0][i] + kappa[i]);
                       return out;
                     }});
  ExpectNanComesOut({"Wkv7BonusAndGate", {of_row, of_row, of_row, of_row, of_all, of_row}, kTokens, [](Inputs in) {
                       Wkv7BonusAndGate(Rows(in[0], kDim), Rows(in[1], kDim), Rows(in[2], kDim), Rows(in[3], kDim),
                                        in[4], 10, Rows(in[5], kDim));
                       return in[0];
                     }});
}

TEST(RecurrenceNanTest, ShortConvolution) {
  ExpectNanComesOut({"ShortConvolution",
                     {{"u", kTokens, kDim, SeenIn::kLater},
                      {"history", 3, kDim, SeenIn::kAll},
                      {"taps", 4, kDim, SeenIn::kAll},
                      {"bias", 1, kDim, SeenIn::kAll}},
                     kTokens,
                     [](Inputs in) {
                       std::vector<float> out(kTokens * kDim);
                       ShortConvolution(Rows(in[0], kDim), 0, kTokens, Rows(in[1], kDim), {Rows(in[2], kDim), in[3]},
                                        Rows(out, kDim));
                       return out;
                     }});
}

}  // namespace
}  // namespace kvm
