#ifndef KVM_KERNELS_CPU_VECTORS_POISONED_INPUTS_TESTING_H_
#define KVM_KERNELS_CPU_VECTORS_POISONED_INPUTS_TESTING_H_

// Every input of a kernel poisoned in turn: NaN comes out where the element is read, and no bit changes elsewhere.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/vectors/every_target.h"

namespace kvm {

// Rows of the output in which an element of an input is seen.
enum class SeenIn {
  kRow,    // the one that it lies in
  kLater,  // that one, at least, and none before it
  kAll,    // any
};

struct PoisonedInput {
  std::string name;
  int64_t rows;
  int64_t cols;
  SeenIn seen_in;
};

struct PoisonedKernel {
  std::string name;
  std::vector<PoisonedInput> inputs;
  int64_t out_rows;
  std::function<std::vector<float>(std::vector<std::vector<float>> inputs)> run;
};

inline void ExpectNanComesOut(const PoisonedKernel& kernel) {
  SCOPED_TRACE(kernel.name);
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(0.25f, 0.75f);  // what gates and decays take, too
  std::vector<std::vector<float>> inputs;
  for (const PoisonedInput& input : kernel.inputs) {
    inputs.emplace_back(input.rows * input.cols);
    for (float& x : inputs.back()) x = uniform(random);
  }
  ForEveryTarget([&] {
    const std::vector<float> clean = kernel.run(inputs);
    const int64_t cols = static_cast<int64_t>(clean.size()) / kernel.out_rows;
    for (const float x : clean) ASSERT_TRUE(std::isfinite(x));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const PoisonedInput& input = kernel.inputs[i];
      SCOPED_TRACE(input.name);
      for (int64_t row = 0; row < input.rows; ++row) {
        for (const int64_t col : {int64_t{0}, input.cols / 2, input.cols - 1}) {
          std::vector<std::vector<float>> poisoned = inputs;
          poisoned[i][row * input.cols + col] = std::numeric_limits<float>::quiet_NaN();
          const std::vector<float> out = kernel.run(poisoned);
          int64_t seen = 0;
          for (int64_t r = 0; r < kernel.out_rows; ++r) {
            const bool may_see =
                input.seen_in == SeenIn::kAll || r == row || (input.seen_in == SeenIn::kLater && r > row);
            if (!may_see) {
              EXPECT_EQ(std::memcmp(&out[r * cols], &clean[r * cols], cols * sizeof(float)), 0) << row << ", " << r;
              continue;
            }
            for (int64_t c = 0; c < cols; ++c) {
              const bool counts = input.seen_in == SeenIn::kAll || r == row;
              if (counts && std::isnan(out[r * cols + c])) ++seen;
            }
          }
          EXPECT_GT(seen, 0) << "row " << row << ", column " << col;
        }
      }
    }
  });
}

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_VECTORS_POISONED_INPUTS_TESTING_H_
