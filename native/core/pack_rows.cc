#include "pack_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>

namespace recmap {

bool RowFitter::fits(std::span<const int64_t> sizes) const {
  return std::all_of(sizes.begin(), sizes.end(),
                     [this](int64_t size) { return size >= 1 && size <= length_; });
}

bool RowFitter::restore(std::span<const int64_t> free) {
  if (!fits(free)) return false;
  free_.clear();
  for (const int64_t each : free) free_.emplace_back(each, static_cast<int64_t>(free_.size()));
  next_ = static_cast<int64_t>(free_.size());
  std::sort(free_.begin(), free_.end());
  return true;
}

std::pair<int64_t, int64_t> RowFitter::put(int64_t size, bool limited, size_t placed,
                                           Places& places) {
  auto found = std::lower_bound(free_.begin(), free_.end(), Free{size, -1});
  int64_t free = length_;
  int64_t row = 0;
  if (found != free_.end()) {
    free = found->first;
    row = found->second;
  } else {
    // A sequence that fills a whole row does not need an open one.
    if (limited && size < length_ && free_.size() >= most_open_) {
      places.finished.push_back(free_.front().second);
      places.after.push_back(static_cast<int64_t>(placed));
      free_.erase(free_.begin());
      found = free_.end();
    }
    row = next_++;
  }
  const int64_t left = free - size;
  const bool is_new = found == free_.end();
  if (left == 0) {
    if (!is_new) free_.erase(found);
    places.finished.push_back(row);
    places.after.push_back(static_cast<int64_t>(placed) + 1);
  } else if (is_new) {
    const Free entry{left, row};
    free_.insert(std::lower_bound(free_.begin(), free_.end(), entry), entry);
  } else {
    // The row moves towards the front, because it is fuller now.
    const Free entry{left, row};
    const auto to = std::lower_bound(free_.begin(), found, entry);
    std::move_backward(to, found, found + 1);
    *to = entry;
  }
  return {row, length_ - free};
}

bool RowFitter::place(std::span<const int64_t> sizes, Places& places) {
  if (!fits(sizes)) return false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto [row, begin] = put(sizes[i], true, i, places);
    places.rows.push_back(row);
    places.begins.push_back(begin);
  }
  return true;
}

bool RowFitter::place_sorted(std::span<const int64_t> sizes, Places& places) {
  if (!fits(sizes)) return false;
  std::vector<std::pair<int64_t, size_t>> sorted;
  sorted.reserve(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) sorted.emplace_back(-sizes[i], i);
  std::sort(sorted.begin(), sorted.end());
  const size_t before = places.finished.size();
  places.rows.resize(sizes.size());
  places.begins.resize(sizes.size());
  for (const auto& [negative, i] : sorted) {
    std::tie(places.rows[i], places.begins[i]) = put(-negative, false, sizes.size(), places);
  }
  while (free_.size() > most_open_) {
    places.finished.push_back(free_.front().second);
    free_.erase(free_.begin());
  }
  std::sort(places.finished.begin() + static_cast<std::ptrdiff_t>(before), places.finished.end());
  places.after.resize(places.finished.size());
  std::fill(places.after.begin() + static_cast<std::ptrdiff_t>(before), places.after.end(),
            static_cast<int64_t>(sizes.size()));
  return true;
}

void RowFitter::finish(Places& places) {
  const size_t before = places.finished.size();
  for (const Free& each : free_) places.finished.push_back(each.second);
  free_.clear();
  std::sort(places.finished.begin() + static_cast<std::ptrdiff_t>(before), places.finished.end());
  places.after.resize(places.finished.size(), 0);
}

namespace {

// Whether `size` items from `begin` on lie within `total`.
bool within(int64_t begin, int64_t size, size_t total) {
  if (begin < 0 || size < 0) return false;
  const auto first = static_cast<uint64_t>(begin);
  return first <= total && static_cast<uint64_t>(size) <= total - first;
}

}  // namespace

bool copy_sequences(std::span<const uint8_t> values, const Copies& copies, size_t item,
                    std::span<uint8_t> out) {
  if (item == 0 || values.size() % item != 0 || out.size() % item != 0) return false;
  const size_t count = copies.sizes.size();
  if (copies.from.size() != count || copies.to.size() != count) return false;
  const size_t there = values.size() / item;
  const size_t here = out.size() / item;
  for (size_t i = 0; i < count; ++i) {
    if (!within(copies.from[i], copies.sizes[i], there)) return false;
    if (!within(copies.to[i], copies.sizes[i], here)) return false;
    const size_t size = static_cast<size_t>(copies.sizes[i]) * item;
    if (size == 0) continue;
    std::memcpy(out.data() + static_cast<size_t>(copies.to[i]) * item,
                values.data() + static_cast<size_t>(copies.from[i]) * item, size);
  }
  return true;
}

bool number_items(std::span<const int64_t> to, std::span<const int64_t> sizes,
                  std::span<const int64_t> numbers, std::span<int32_t> positions,
                  std::span<int32_t> segments) {
  const size_t count = sizes.size();
  if (to.size() != count || numbers.size() != count) return false;
  for (size_t i = 0; i < count; ++i) {
    const auto size = static_cast<size_t>(sizes[i]);
    if (!positions.empty()) {
      if (!within(to[i], sizes[i], positions.size())) return false;
      const auto part = positions.subspan(static_cast<size_t>(to[i]), size);
      std::iota(part.begin(), part.end(), 0);
    }
    if (!segments.empty()) {
      if (!within(to[i], sizes[i], segments.size())) return false;
      const auto part = segments.subspan(static_cast<size_t>(to[i]), size);
      std::fill(part.begin(), part.end(), static_cast<int32_t>(numbers[i]));
    }
  }
  return true;
}

}  // namespace recmap
