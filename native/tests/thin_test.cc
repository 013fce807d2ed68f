// Thinned lanes, compared with sorting each of them.
#include "thin.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

template <typename T>
void check_lanes(size_t lanes, size_t step) {
  std::mt19937_64 random(lanes + step);
  std::vector<T> rows(kThinGroup * lanes);
  for (T& value : rows) {
    value = static_cast<T>(random() >> (random() % 64));
    if constexpr (std::is_signed_v<T>) value = random() % 2 ? value : static_cast<T>(-value);
    if constexpr (std::is_floating_point_v<T>) {
      constexpr T kInf = std::numeric_limits<T>::infinity();
      if (random() % 9 == 0) value = random() % 2 ? kInf : random() % 2 ? -kInf : std::nan("");
      if (random() % 9 == 0) value = random() % 2 ? T{0} : -T{0};
      if (random() % 9 == 0) value = std::numeric_limits<T>::denorm_min();
    }
  }
  std::vector<T> out(kThinGroup / step * lanes);
  std::vector<uint8_t> first(lanes);
  for (uint8_t& each : first) each = static_cast<uint8_t>(random() % step);
  thin_lanes<T>(rows, first, step, out);
  for (size_t lane = 0; lane < lanes; ++lane) {
    std::vector<T> sorted;
    for (size_t i = 0; i < kThinGroup; ++i) {
      const T value = rows[i * lanes + lane];
      sorted.push_back(value - value == 0 ? value : std::numeric_limits<T>::infinity());
    }
    std::ranges::sort(sorted);
    for (size_t i = 0; i < kThinGroup / step; ++i) {
      CHECK_EQ(out[i * lanes + lane], sorted[first[lane] + i * step]);
    }
  }
}

template <typename T>
void check_all() {
  for (const size_t lanes : {0u, 1u, 3u, 14u, 63u, 64u, 65u, 200u}) {
    for (const size_t step : {1u, 2u, 4u, 8u}) check_lanes<T>(lanes, step);
  }
}

TEST(LanesAreSortedAndThinned) {
  check_all<float>();
  check_all<double>();
  check_all<int32_t>();
  check_all<uint32_t>();
  check_all<int64_t>();
  check_all<uint64_t>();
}

}  // namespace
}  // namespace recmap
