// Every stack of test_stacks.h keeps every promise of conformance.h, with either dtype of state.

#include "testing/conformance.h"

#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using Parameters = std::tuple<TestStack, DType>;

std::string CaseName(const ::testing::TestParamInfo<Parameters>& info) {
  return absl::StrCat(std::get<0>(info.param).name, "_", Name(std::get<1>(info.param)));
}

class ConformanceTest : public ::testing::TestWithParam<Parameters> {
 protected:
  ConformanceSubject subject_{std::get<0>(GetParam()), std::get<1>(GetParam())};
};

TEST_P(ConformanceTest, SameBitsInPieces) { ExpectSameBitsInPieces(subject_); }
TEST_P(ConformanceTest, SameBitsInRaggedBatches) { ExpectSameBitsInRaggedBatches(subject_); }
TEST_P(ConformanceTest, SameBitsWithThreads) { ExpectSameBitsWithThreads(subject_); }
TEST_P(ConformanceTest, SameBitsForFewerLogits) { ExpectSameBitsForFewerLogits(subject_); }
TEST_P(ConformanceTest, ForksAreIndependent) { ExpectForksAreIndependent(subject_); }
TEST_P(ConformanceTest, Causality) { ExpectCausality(subject_); }
TEST_P(ConformanceTest, PredictedStateSize) { ExpectPredictedStateSize(subject_); }
TEST_P(ConformanceTest, BadBatchesChangeNothing) { ExpectBadBatchesChangeNothing(subject_); }

INSTANTIATE_TEST_SUITE_P(All, ConformanceTest,
                         ::testing::Combine(::testing::ValuesIn(TestStacks()),
                                            ::testing::Values(DType::kF32, DType::kBF16)),
                         CaseName);

}  // namespace
}  // namespace kvm
