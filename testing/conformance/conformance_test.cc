// Every stack of test_stacks.h keeps every promise of conformance.h and state_conformance.h, with any dtype of state.

#include "testing/conformance/conformance.h"

#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kvm/kernels/dtype.h"
#include "kvm/model/stack/model_options.h"
#include "testing/conformance/state_conformance.h"

namespace kvm {
namespace {

using Parameters = std::tuple<TestStack, DType>;

std::string CaseName(const ::testing::TestParamInfo<Parameters>& info) {
  return absl::StrCat(std::get<0>(info.param).name, "_", Name(std::get<1>(info.param)));
}

ModelOptions Options(DType state, bool chunked_recurrences) {
  ModelOptions options;
  options.state = state;
  options.chunked_recurrences = chunked_recurrences;
  return options;
}

ModelOptions WithProvenance() {
  ModelOptions options;
  options.provenance = true;
  return options;
}

class ConformanceTest : public ::testing::TestWithParam<Parameters> {
 protected:
  ConformanceSubject subject_{std::get<0>(GetParam()), Options(std::get<1>(GetParam()), false)};
};

TEST_P(ConformanceTest, SameBitsInPieces) { ExpectSameBitsInPieces(subject_); }
TEST_P(ConformanceTest, SameBitsInRaggedBatches) { ExpectSameBitsInRaggedBatches(subject_); }
TEST_P(ConformanceTest, SameBitsWithThreads) { ExpectSameBitsWithThreads(subject_); }
TEST_P(ConformanceTest, SameBitsForFewerLogits) { ExpectSameBitsForFewerLogits(subject_); }
TEST_P(ConformanceTest, ForksAreIndependent) { ExpectForksAreIndependent(subject_); }
TEST_P(ConformanceTest, Causality) { ExpectCausality(subject_); }
TEST_P(ConformanceTest, PredictedStateSize) { ExpectPredictedStateSize(subject_); }
TEST_P(ConformanceTest, BadBatchesChangeNothing) { ExpectBadBatchesChangeNothing(subject_); }
TEST_P(ConformanceTest, RestoredStatesGoOn) { ExpectRestoredStatesGoOn(subject_); }
TEST_P(ConformanceTest, BadFieldsAreRefused) { ExpectBadFieldsAreRefused(subject_); }
TEST_P(ConformanceTest, ForksShareUntilExtended) { ExpectForksShareUntilExtended(subject_); }

INSTANTIATE_TEST_SUITE_P(All, ConformanceTest,
                         ::testing::Combine(::testing::ValuesIn(TestStacks()),
                                            ::testing::Values(DType::kF32, DType::kBF16, DType::kI8)),
                         CaseName);

// States with the record of rows keep all promises.
class ProvenanceConformanceTest : public ::testing::TestWithParam<TestStack> {
 protected:
  ConformanceSubject subject_{GetParam(), WithProvenance()};
};

TEST_P(ProvenanceConformanceTest, ForksAreIndependent) { ExpectForksAreIndependent(subject_); }
TEST_P(ProvenanceConformanceTest, PredictedStateSize) { ExpectPredictedStateSize(subject_); }
TEST_P(ProvenanceConformanceTest, RestoredStatesGoOn) { ExpectRestoredStatesGoOn(subject_); }
TEST_P(ProvenanceConformanceTest, BadFieldsAreRefused) { ExpectBadFieldsAreRefused(subject_); }

INSTANTIATE_TEST_SUITE_P(All, ProvenanceConformanceTest, ::testing::ValuesIn(TestStacks()),
                         [](const auto& info) { return info.param.name; });

TEST(ForeignStatesTest, AreRefused) {
  std::vector<ConformanceSubject> subjects;
  for (const TestStack& stack : TestStacks()) subjects.emplace_back(stack, Options(DType::kF32, false));
  // One that differs in the dtype of its state alone.
  subjects.emplace_back(TestStacks().front(), Options(DType::kBF16, false));
  // And one in its record of rows.
  subjects.emplace_back(TestStacks().front(), WithProvenance());
  ExpectForeignStatesAreRefused(subjects);
}

// Recurrences in chunks give up the same bits for other cuts into calls, and keep the rest.
class ChunkedConformanceTest : public ::testing::TestWithParam<TestStack> {
 protected:
  ConformanceSubject subject_{GetParam(), Options(DType::kF32, true)};
};

TEST_P(ChunkedConformanceTest, NearSteps) { ExpectNearSteps(subject_); }
TEST_P(ChunkedConformanceTest, SameBitsWithThreads) { ExpectSameBitsWithThreads(subject_); }
TEST_P(ChunkedConformanceTest, Causality) { ExpectCausality(subject_); }
TEST_P(ChunkedConformanceTest, PredictedStateSize) { ExpectPredictedStateSize(subject_); }
TEST_P(ChunkedConformanceTest, BadBatchesChangeNothing) { ExpectBadBatchesChangeNothing(subject_); }

INSTANTIATE_TEST_SUITE_P(All, ChunkedConformanceTest, ::testing::ValuesIn(RecurrentStacks()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kvm
