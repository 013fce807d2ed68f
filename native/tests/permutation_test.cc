// Random orders that are computed.
#include "permutation.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

using Numbers = std::vector<int64_t>;
const std::vector<uint32_t> kKeys = {3, 1, 4, 1, 5, 9, 2, 6};

Numbers upto(int64_t n) {
  Numbers numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(EveryRowComesOnceWhateverTheirNumber) {
  for (int64_t n = 1; n < 300; ++n) {
    Numbers numbers = upto(n);
    CHECK(permute(static_cast<uint64_t>(n), kKeys, Direction::kForth, numbers));
    std::sort(numbers.begin(), numbers.end());
    CHECK(numbers == upto(n));
  }
}

TEST(SeveralThreadsComputeTheSameOrder) {
  for (const int64_t n : {1, 511, 8193, 100'003}) {
    for (const Direction direction : {Direction::kForth, Direction::kBack}) {
      Numbers alone = upto(n);
      Numbers together = upto(n);
      CHECK(permute(static_cast<uint64_t>(n), kKeys, direction, alone));
      CHECK(permute(static_cast<uint64_t>(n), kKeys, direction, together, 3));
      CHECK(alone == together);
    }
  }
}

TEST(BackIsTheInverse) {
  for (const int64_t n : {1, 2, 3, 64, 65, 1000}) {
    Numbers numbers = upto(n);
    CHECK(permute(static_cast<uint64_t>(n), kKeys, Direction::kForth, numbers));
    CHECK(permute(static_cast<uint64_t>(n), kKeys, Direction::kBack, numbers));
    CHECK(numbers == upto(n));
  }
}

TEST(HugeNumbersOfRowsAreFine) {
  const uint64_t n = (uint64_t{1} << 62) + 5;
  Numbers numbers = {0, 1, int64_t{1} << 62};
  CHECK(permute(n, kKeys, Direction::kForth, numbers));
  for (const int64_t x : numbers) CHECK(x >= 0 && static_cast<uint64_t>(x) < n);
  CHECK(permute(n, kKeys, Direction::kBack, numbers));
  CHECK((numbers == Numbers{0, 1, int64_t{1} << 62}));
}

TEST(ANumberOutsideIsRefusedAndNothingWritten) {
  Numbers numbers = {0, 5};
  CHECK(!permute(5, kKeys, Direction::kForth, numbers));
  CHECK((numbers == Numbers{0, 5}));
  numbers = {-1};
  CHECK(!permute(5, kKeys, Direction::kForth, numbers));
  numbers = {0};
  CHECK(!permute(0, kKeys, Direction::kForth, numbers));
}

}  // namespace
}  // namespace recmap
