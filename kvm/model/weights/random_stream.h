#ifndef KVM_MODEL_WEIGHTS_RANDOM_STREAM_H_
#define KVM_MODEL_WEIGHTS_RANDOM_STREAM_H_

// Random numbers by index: number i of a stream is a function of the stream's seed and name and of i, so that threads
// can draw any part of a stream in any order.

#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/string_view.h"

namespace kvm {

class RandomStream {
 public:
  RandomStream(uint64_t seed, absl::string_view name) : key_(Mix(seed + kStep)) {
    // FNV-1a of the name.
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    key_ = Mix(key_ ^ hash);
  }

  // 64 random bits (splitmix64).
  uint64_t Bits(int64_t i) const { return Mix(key_ + static_cast<uint64_t>(i) * kStep); }

  // In [0, 1).
  double Uniform(int64_t i) const { return static_cast<double>(Bits(i) >> 11) * 0x1p-53; }

  // Two independent numbers of the standard normal distribution (Box–Muller), made of Uniform(2i) and Uniform(2i + 1).
  std::pair<double, double> Normals(int64_t i) const {
    const double radius = std::sqrt(-2 * std::log(1 - Uniform(2 * i)));
    const double angle = 6.283185307179586 * Uniform(2 * i + 1);
    return {radius * std::cos(angle), radius * std::sin(angle)};
  }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;

  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  uint64_t key_;
};

}  // namespace kvm

#endif  // KVM_MODEL_WEIGHTS_RANDOM_STREAM_H_
