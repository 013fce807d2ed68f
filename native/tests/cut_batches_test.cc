// Rows cut into batches by what they cost.
#include "cut_batches.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

using Costs = std::vector<double>;
using Numbers = std::vector<int64_t>;

Numbers cut(const Costs& costs, const BatchLimits& limits, size_t at_a_time) {
  Numbers begins;
  OpenBatch open;
  for (size_t i = 0; i < costs.size(); i += at_a_time) {
    const size_t stop = std::min(costs.size(), i + at_a_time);
    const std::span<const double> some(costs.data() + i, stop - i);
    cut_batches(some, limits, static_cast<int64_t>(i), open, begins);
  }
  return begins;
}

TEST(BatchesEndWhereTheNextRowWouldExceedTheLimit) {
  const Costs costs = {3, 4, 4, 1, 9, 0, 2};
  for (const size_t at_a_time : {size_t{1}, size_t{3}, size_t{100}}) {
    CHECK((cut(costs, {.cost = 10, .rows = 100}, at_a_time) == Numbers{2, 4, 6}));
    CHECK((cut(costs, {.cost = 10, .rows = 100, .padded = true}, at_a_time) == Numbers{2, 4, 5}));
    CHECK((cut(costs, {.cost = 10, .rows = 1}, at_a_time) == Numbers{1, 2, 3, 4, 5, 6}));
  }
  CHECK(cut({}, {.cost = 10, .rows = 100}, 1).empty());
  CHECK((cut({99}, {.cost = 10, .rows = 100}, 1)).empty());
}

TEST(EveryBucketFillsItsOwnBatch) {
  Numbers rows;
  Numbers ends;
  const Costs costs = {1, 9, 1, 9, 1};
  const Numbers buckets = {0, 1, 0, 1, 0};
  CHECK(cut_buckets(costs, buckets, 2, {.cost = 10, .rows = 2}, rows, ends));
  CHECK((rows == Numbers{1, 0, 2, 4, 3}));
  CHECK((ends == Numbers{1, 3, 4, 5}));
}

TEST(BucketsThatDoNotExistAreRefused) {
  Numbers rows;
  Numbers ends;
  const Costs costs = {1, 1};
  CHECK(!cut_buckets(costs, Numbers{0, 2}, 2, {.cost = 1, .rows = 1}, rows, ends));
  CHECK(!cut_buckets(costs, Numbers{0, -1}, 2, {.cost = 1, .rows = 1}, rows, ends));
  CHECK(!cut_buckets(costs, Numbers{0}, 2, {.cost = 1, .rows = 1}, rows, ends));
}

}  // namespace
}  // namespace recmap
