#include "cut_batches.h"

#include <algorithm>

namespace recmap {

bool OpenBatch::has_room(double cost, const BatchLimits& limits) const {
  if (rows == 0) return true;
  if (rows >= limits.rows) return false;
  if (limits.padded) return static_cast<double>(rows + 1) * std::max(largest, cost) <= limits.cost;
  return total + cost <= limits.cost;
}

void OpenBatch::add(double cost) {
  ++rows;
  total += cost;
  largest = std::max(largest, cost);
}

void cut_batches(std::span<const double> costs, const BatchLimits& limits, int64_t first,
                 OpenBatch& open, std::vector<int64_t>& begins) {
  for (size_t i = 0; i < costs.size(); ++i) {
    if (!open.has_room(costs[i], limits)) {
      begins.push_back(first + static_cast<int64_t>(i));
      open = {};
    }
    open.add(costs[i]);
  }
}

bool cut_buckets(std::span<const double> costs, std::span<const int64_t> buckets, size_t count,
                 const BatchLimits& limits, std::vector<int64_t>& rows,
                 std::vector<int64_t>& ends) {
  if (costs.size() != buckets.size()) return false;
  std::vector<OpenBatch> open(count);
  std::vector<std::vector<int64_t>> held(count);
  const auto finish = [&](size_t bucket) {
    rows.insert(rows.end(), held[bucket].begin(), held[bucket].end());
    ends.push_back(static_cast<int64_t>(rows.size()));
    held[bucket].clear();
    open[bucket] = {};
  };
  for (size_t i = 0; i < costs.size(); ++i) {
    if (buckets[i] < 0 || static_cast<size_t>(buckets[i]) >= count) return false;
    const auto bucket = static_cast<size_t>(buckets[i]);
    if (!open[bucket].has_room(costs[i], limits)) finish(bucket);
    open[bucket].add(costs[i]);
    held[bucket].push_back(static_cast<int64_t>(i));
  }
  for (size_t bucket = 0; bucket < count; ++bucket) {
    if (open[bucket].rows != 0) finish(bucket);
  }
  return true;
}

}  // namespace recmap
