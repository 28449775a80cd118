#include "kvm/state/snapshot/sampler_state.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

TEST(ValidateSamplerOptionsTest, NamesTheOptionAndItsRange) {
  const auto error = [](const SamplerOptions& options) {
    return std::string(ValidateSamplerOptions(options).message());
  };
  EXPECT_TRUE(ValidateSamplerOptions({}).ok());
  SamplerOptions options;
  options.temperature = -1;
  EXPECT_EQ(error(options), "temperature is -1; expected a finite number of at least 0");
  options = {};
  options.top_k = -1;
  EXPECT_THAT(error(options), HasSubstr("top_k is -1"));
  options = {};
  options.top_p = 0;
  EXPECT_THAT(error(options), HasSubstr("top_p is 0; expected more than 0 and at most 1"));
  options = {};
  options.min_p = 1;
  EXPECT_THAT(error(options), HasSubstr("min_p is 1"));
  options = {};
  options.repetition_penalty = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(error(options), HasSubstr("repetition_penalty is nan"));
}

}  // namespace
}  // namespace kvm
