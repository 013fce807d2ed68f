#include "pack_rows.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

#include "parallel.h"

namespace recmap {

bool RowFitter::fits(std::span<const int64_t> sizes) const {
  return std::all_of(sizes.begin(), sizes.end(),
                     [this](int64_t size) { return size >= 1 && size <= length_; });
}

bool RowFitter::restore(std::span<const int64_t> free, std::span<const int64_t> sequences) {
  if (!fits(free) || sequences.size() != free.size()) return false;
  open_.clear();
  for (size_t i = 0; i < free.size(); ++i) {
    open_.push_back({free[i], static_cast<int64_t>(i), sequences[i]});
  }
  std::sort(open_.begin(), open_.end());
  return true;
}

void RowFitter::begin(std::span<const int64_t> sizes, Places& places) {
  std::vector<OpenRow*> rows;
  for (OpenRow& row : open_) rows.push_back(&row);
  std::sort(rows.begin(), rows.end(), [](auto* a, auto* b) { return a->number < b->number; });
  next_ = 0;
  for (OpenRow* row : rows) row->number = next_++;
  places.rows.resize(sizes.size());
  places.begins.resize(sizes.size());
  places.numbers.resize(sizes.size());
}

void RowFitter::close(const OpenRow& row, size_t placed, Places& places) const {
  places.finished.push_back({row.number, length_ - row.free, static_cast<int64_t>(placed)});
}

void RowFitter::put(size_t i, int64_t size, bool limited, Places& places) {
  auto found = std::lower_bound(open_.begin(), open_.end(), OpenRow{size, -1});
  const bool is_new = found == open_.end();
  // A sequence that fills a whole row does not need an open one.
  if (is_new && limited && size < length_ && open_.size() >= most_open_) {
    close(open_.front(), i, places);
    open_.erase(open_.begin());
    found = open_.end();
  }
  OpenRow row = is_new ? OpenRow{length_, next_++} : *found;
  places.rows[i] = row.number;
  places.begins[i] = length_ - row.free;
  places.numbers[i] = ++row.sequences;
  row.free -= size;
  if (row.free == 0) {
    if (!is_new) open_.erase(found);
    close(row, i + 1, places);
  } else if (is_new) {
    open_.insert(std::lower_bound(open_.begin(), open_.end(), row), row);
  } else {
    // The row moves towards the front, because it is fuller now.
    const auto to = std::lower_bound(open_.begin(), found, row);
    std::move_backward(to, found, found + 1);
    *to = row;
  }
}

bool RowFitter::place(std::span<const int64_t> sizes, Places& places) {
  if (!fits(sizes)) return false;
  begin(sizes, places);
  for (size_t i = 0; i < sizes.size(); ++i) put(i, sizes[i], true, places);
  return true;
}

// Puts the sequences of a window in order, the longest first. They are counted by size, unless
// that would take longer than to compare them.
void RowFitter::sort_window(std::span<const int64_t> sizes, size_t first, size_t end) {
  order_.resize(end - first);
  std::iota(order_.begin(), order_.end(), first);
  const auto size = [&](size_t i) { return static_cast<size_t>(sizes[i]); };
  size_t longest = 0;
  for (const size_t i : order_) longest = std::max(longest, size(i));
  if (longest > 4 * order_.size()) {
    const auto longer = [&](size_t a, size_t b) { return sizes[a] > sizes[b]; };
    return std::stable_sort(order_.begin(), order_.end(), longer);
  }
  counts_.assign(longest + 1, 0);
  for (size_t i = first; i < end; ++i) ++counts_[longest - size(i)];
  std::exclusive_scan(counts_.begin(), counts_.end(), counts_.begin(), size_t{0});
  for (size_t i = first; i < end; ++i) order_[counts_[longest - size(i)]++] = i;
}

bool RowFitter::place_sorted(std::span<const int64_t> sizes, std::span<const int64_t> ends,
                             Places& places) {
  if (!fits(sizes) || !std::is_sorted(ends.begin(), ends.end())) return false;
  const auto last = ends.empty() ? 0 : ends.back();
  if (last != static_cast<int64_t>(sizes.size()) || (!ends.empty() && ends[0] < 0)) return false;
  begin(sizes, places);
  size_t first = 0;
  for (const int64_t each : ends) {
    const auto end = static_cast<size_t>(each);
    const auto before = static_cast<std::ptrdiff_t>(places.finished.size());
    sort_window(sizes, first, end);
    for (const size_t i : order_) put(i, sizes[i], false, places);
    while (open_.size() > most_open_) {
      close(open_.front(), end, places);
      open_.erase(open_.begin());
    }
    const auto older = [](auto& a, auto& b) { return a.number < b.number; };
    std::sort(places.finished.begin() + before, places.finished.end(), older);
    for (auto row = places.finished.begin() + before; row != places.finished.end(); ++row) {
      row->after = each;
    }
    first = end;
  }
  return true;
}

std::vector<int64_t> RowFitter::finish() {
  const auto older = [](auto& a, auto& b) { return a.number < b.number; };
  std::sort(open_.begin(), open_.end(), older);
  std::vector<int64_t> used;
  for (const OpenRow& row : open_) used.push_back(length_ - row.free);
  open_.clear();
  return used;
}

namespace {

// Whether `size` items from `begin` on lie within `total`.
bool within(int64_t begin, int64_t size, size_t total) {
  if (begin < 0 || size < 0) return false;
  const auto first = static_cast<uint64_t>(begin);
  return first <= total && static_cast<uint64_t>(size) <= total - first;
}

// Calls work(i) for each of `count` sequences, and returns whether all calls returned true.
template <typename Work>
bool each_sequence(size_t count, size_t threads, Work&& work) {
  constexpr size_t kBlock = 1 << 12;
  std::atomic<bool> sound{true};
  parallel_blocks(count, kBlock, threads, [&](size_t begin, size_t end) {
    bool all = true;
    for (size_t i = begin; i < end; ++i) all &= work(i);
    if (!all) sound = false;
  });
  return sound;
}

}  // namespace

bool copy_sequences(std::span<const uint8_t> values, const Copies& copies, size_t item,
                    std::span<uint8_t> out, size_t threads) {
  if (item == 0 || values.size() % item != 0 || out.size() % item != 0) return false;
  const size_t count = copies.sizes.size();
  if (copies.from.size() != count || copies.to.size() != count) return false;
  const size_t there = values.size() / item;
  const size_t here = out.size() / item;
  return each_sequence(count, threads, [&](size_t i) {
    if (!within(copies.from[i], copies.sizes[i], there)) return false;
    if (!within(copies.to[i], copies.sizes[i], here)) return false;
    const size_t size = static_cast<size_t>(copies.sizes[i]) * item;
    if (size == 0) return true;
    std::memcpy(out.data() + static_cast<size_t>(copies.to[i]) * item,
                values.data() + static_cast<size_t>(copies.from[i]) * item, size);
    return true;
  });
}

namespace {

using Four = int32_t __attribute__((vector_size(16)));

// Writes four numbers at a time, the last ones twice.
template <typename From>
void write_fours(std::span<int32_t> out, From from) {
  constexpr size_t kFour = 4;
  if (out.size() < kFour) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = from(i)[0];
    return;
  }
  const auto write = [&](size_t i) {
    const Four four = from(i);
    std::memcpy(out.data() + i, &four, sizeof four);
  };
  for (size_t i = 0; i + kFour < out.size(); i += kFour) write(i);
  write(out.size() - kFour);
}

}  // namespace

bool number_items(std::span<const int64_t> to, std::span<const int64_t> sizes,
                  std::span<const int64_t> numbers, std::span<int32_t> positions,
                  std::span<int32_t> segments, size_t threads) {
  const size_t count = sizes.size();
  if (to.size() != count || numbers.size() != count) return false;
  constexpr Four kFirst = {0, 1, 2, 3};
  return each_sequence(count, threads, [&](size_t i) {
    const auto begin = static_cast<size_t>(to[i]), size = static_cast<size_t>(sizes[i]);
    if (!positions.empty()) {
      if (!within(to[i], sizes[i], positions.size())) return false;
      const auto count_up = [&](size_t at) { return kFirst + static_cast<int32_t>(at); };
      write_fours(positions.subspan(begin, size), count_up);
    }
    if (!segments.empty()) {
      if (!within(to[i], sizes[i], segments.size())) return false;
      const Four number = Four{} + static_cast<int32_t>(numbers[i]);
      write_fours(segments.subspan(begin, size), [&](size_t) { return number; });
    }
    return true;
  });
}

}  // namespace recmap
