// Rows, in order -> batches whose cost is bounded. All functions are safe to call from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace recmap {

struct BatchLimits {
  double cost = 0;      // of all rows of a batch
  int64_t rows = 0;     // of a batch
  bool padded = false;  // every row costs as much as the most expensive one of its batch
};

// A batch that more rows may be added to.
struct OpenBatch {
  int64_t rows = 0;
  double total = 0;
  double largest = 0;

  bool has_room(double cost, const BatchLimits& limits) const;
  void add(double cost);
};

// Appends the numbers of the rows that begin a new batch, where `first` is the number of the first
// row. `open` is the batch before them, and becomes the last one.
void cut_batches(std::span<const double> costs, const BatchLimits& limits, int64_t first,
                 OpenBatch& open, std::vector<int64_t>& begins);

// Fills a batch for each bucket, and appends batches when they are full: their rows to `rows`, and
// where each ends in `rows` to `ends`. Batches that are not full come last, by bucket. Returns
// false if a bucket is not below `open.size()`, or the lengths differ.
bool cut_buckets(std::span<const double> costs, std::span<const int64_t> buckets, size_t count,
                 const BatchLimits& limits, std::vector<int64_t>& rows, std::vector<int64_t>& ends);

}  // namespace recmap
