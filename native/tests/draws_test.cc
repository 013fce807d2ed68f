// Rows drawn by weight.
#include "draws.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

using Numbers = std::vector<int64_t>;
// Row 0 always gives row 1, row 1 stays, and row 2 gives row 1 half of the time.
const std::vector<uint64_t> kSlots = {1, 0xFFFFFFFF'00000001, 0x80000000'00000001};

Numbers upto(int64_t n) {
  Numbers numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(DrawsAreTheSameOnEveryMachine) {
  Numbers numbers = upto(16);
  CHECK(draw_by_slots(kSlots, 2, numbers));
  CHECK((numbers == Numbers{1, 2, 1, 2, 1, 1, 2, 2, 1, 2, 1, 1, 1, 1, 1, 1}));
}

TEST(DrawsFollowTheChancesOfSlots) {
  Numbers numbers = upto(60'000);
  CHECK(draw_by_slots(kSlots, 1, numbers));
  size_t found = 0;
  for (const int64_t row : numbers) {
    CHECK(row == 1 || row == 2);
    found += row == 2;
  }
  CHECK(found > 9'500 && found < 10'500);
}

TEST(SeveralThreadsDrawTheSameRows) {
  for (const int64_t n : {1, 255, 257, 100'003}) {
    Numbers alone = upto(n);
    Numbers together = upto(n);
    CHECK(draw_by_slots(kSlots, 3, alone));
    CHECK(draw_by_slots(kSlots, 3, together, 3));
    CHECK(alone == together);
  }
}

TEST(NothingIsDrawnFromNoSlots) {
  Numbers numbers = {1, 2};
  CHECK(!draw_by_slots({}, 1, numbers));
  CHECK((numbers == Numbers{1, 2}));
}

}  // namespace
}  // namespace recmap
