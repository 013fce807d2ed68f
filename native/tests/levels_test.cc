#include "levels.h"

#include <cstdint>

#include "check.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using wire::Buffer;

int64_t zeros(const Buffer& levels, int64_t count, int bits) {
  const Buffer exact(levels);
  return count_zero_levels(exact, count, bits);
}

TEST(LevelsInRunsOfOneValue) {
  CHECK(zeros({10 << 1, 0, 4 << 1, 1}, 14, 1) == 10);
  CHECK(zeros({10 << 1, 0}, 7, 1) == 7);
}

TEST(LevelsOfPackedBits) {
  CHECK(zeros({1 << 1 | 1, 0b00000101}, 8, 1) == 6);
  CHECK(zeros({1 << 1 | 1, 0b00000101}, 3, 1) == 1);
  CHECK(zeros({1 << 1 | 1, 0b11100100, 0b00000000}, 8, 2) == 5);
}

TEST(LevelsThatAreTooFew) {
  CHECK(zeros({}, 1, 1) == -1);
  CHECK(zeros({0}, 1, 1) == -1);
  CHECK(zeros({2 << 1}, 1, 1) == -1);
  CHECK(zeros({2 << 1 | 1, 0xff}, 16, 1) == -1);
  CHECK(zeros({0xff, 0xff}, 1, 1) == -1);
}

}  // namespace
}  // namespace recmap
