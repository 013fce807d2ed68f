#include "gather.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "copy_cache_lines.h"
#include "pack_rows.h"
#include "parallel.h"
#include "prefetch_spans.h"

namespace recmap {
namespace {

// This many short rows are fetched from memory before they are copied: many cache misses at once
// take hardly longer than one. They are fetched by reading, because a CPU may ignore a prefetch
// whose page it would have to look up first.
constexpr size_t kRowsAtOnce = 64;
// Rows of a few pages end before the CPU notices that they are read in order, so all lines of the
// row this far ahead are prefetched.
constexpr size_t kPrefetchDistance = 2;
// A block of this many bytes is worth handing to a thread.
constexpr size_t kBlockBytes = size_t{1} << 20;

// Copies rows of equal size, one after another. row_at(i) is where row i lies.
template <typename RowAt>
class Gather {
 public:
  Gather(RowAt row_at, size_t row_bytes, std::span<uint8_t> to, const Shifted& shifted)
      : row_at_(row_at), row_bytes_(row_bytes), to_(to), shifted_(shifted) {}

  void copy(size_t begin, size_t end) const {
    if (row_bytes_ < kLong) {
      for (size_t at = begin; at < end; at += kRowsAtOnce) {
        copy_short(at, std::min(at + kRowsAtOnce, end));
      }
      return;
    }
    for (size_t i = begin; i < end; ++i) {
      const uint8_t* next = row(std::min(i + kPrefetchDistance, end - 1));
      if (row_bytes_ > kLongest) {
        copy_cache_lines(out(i), row(i), row_bytes_);
        copy_shifted(i);
      } else if (shifted_.to.empty()) {
        copy_cache_lines_prefetching(out(i), row(i), row_bytes_, next);
      } else {
        copy_both(i, next);
      }
    }
  }

 private:
  static constexpr size_t kLong = 1024;
  static constexpr size_t kLongest = 16384;
  static constexpr size_t kLine = 64;

  const uint8_t* row(size_t i) const { return row_at_(i); }

  uint8_t* out(size_t i) const { return to_.data() + i * row_bytes_; }
  uint8_t* later(size_t i) const { return shifted_.to.data() + i * row_bytes_; }

  void copy_short(size_t begin, size_t end) const {
    for (size_t i = begin; i < end; ++i) touch(i);
    for (size_t i = begin; i < end; ++i) {
      std::memcpy(out(i), row(i), row_bytes_);
      copy_shifted(i);
    }
  }

  // The row is in the CPU's cache.
  void copy_shifted(size_t i) const {
    if (!shifted_.to.empty()) copy_cache_lines(later(i), row(i) + shifted_.by, row_bytes_);
  }

  // Writes each line to both places.
  void copy_both(size_t i, const uint8_t* next) const {
    const uint8_t* from = row(i);
    const size_t whole = row_bytes_ / kLine * kLine;
    for (size_t at = 0; at < whole; at += kLine) {
      __builtin_prefetch(next + at);
      copy_cache_line(out(i) + at, from + at);
      copy_cache_line(later(i) + at, from + shifted_.by + at);
    }
    copy_cache_lines(out(i) + whole, from + whole, row_bytes_ - whole);
    copy_cache_lines(later(i) + whole, from + shifted_.by + whole, row_bytes_ - whole);
  }

  // Reads the first lines; the CPU notices by itself if more of them are read.
  void touch(size_t i) const {
    const uint8_t* from = row(i);
    const size_t bytes = std::min(row_bytes_, 4 * kLine);
    for (size_t at = 0; at < bytes; at += kLine) read(from + at);
    read(from + bytes - 1);
  }

  static void read(const uint8_t* from) {
    static_cast<void>(*static_cast<const volatile uint8_t*>(from));
  }

  RowAt row_at_;
  size_t row_bytes_;
  std::span<uint8_t> to_;
  const Shifted& shifted_;
};

template <typename RowAt>
void gather(RowAt row_at, size_t count, size_t row_bytes, std::span<uint8_t> to, size_t threads,
            const Shifted& shifted = {}) {
  const Gather<RowAt> rows(row_at, row_bytes, to, shifted);
  const size_t block = std::max<size_t>(1, kBlockBytes / row_bytes);
  parallel_blocks(count, block, threads, [&](size_t begin, size_t end) { rows.copy(begin, end); });
}

// How far a box reaches where it lies and where it goes; SIZE_MAX if that overflows.
struct Reach {
  size_t from, to;

  Reach(std::span<const BoxAxis> axes, size_t run) : from(run), to(run) {
    for (const BoxAxis& axis : axes) {
      from = extended(from, axis.count, axis.from_step);
      to = extended(to, axis.count, axis.to_step);
    }
  }

  static size_t extended(size_t reach, size_t count, size_t step) {
    size_t more = 0;
    if (count == 0 || __builtin_mul_overflow(count - 1, step, &more) ||
        __builtin_add_overflow(reach, more, &reach)) {
      return SIZE_MAX;
    }
    return reach;
  }
};

}  // namespace

bool box_fits(std::span<const BoxAxis> axes, size_t run, size_t from, size_t to) {
  const Reach reach(axes, run);
  return reach.from <= from && reach.to <= to;
}

void copy_box(uint8_t* to, const uint8_t* from, std::span<const BoxAxis> axes, size_t run) {
  if (axes.empty()) {
    std::memcpy(to, from, run);
    return;
  }
  const BoxAxis& axis = axes.front();
  for (size_t i = 0; i < axis.count; ++i) {
    copy_box(to + i * axis.to_step, from + i * axis.from_step, axes.subspan(1), run);
  }
}

bool gather_rows(std::span<const uint8_t> from, size_t row_bytes, std::span<const int64_t> rows,
                 std::span<uint8_t> to, size_t threads, const Shifted& shifted) {
  if (row_bytes == 0 || to.size() / row_bytes != rows.size() || to.size() % row_bytes != 0) {
    return false;
  }
  if (!shifted.to.empty() && shifted.to.size() != to.size()) return false;
  const size_t count = (from.size() - std::min(shifted.by, from.size())) / row_bytes;
  const auto inside = [count](int64_t row) { return static_cast<uint64_t>(row) < count; };
  if (!std::all_of(rows.begin(), rows.end(), inside)) return false;
  gather([=](size_t i) { return from.data() + static_cast<size_t>(rows[i]) * row_bytes; },
         rows.size(), row_bytes, to, threads, shifted);
  return true;
}

bool are_rows(const ChosenRows& chosen) {
  const size_t count = std::max<size_t>(chosen.offsets.size(), 1) - 1;
  return std::all_of(chosen.rows.begin(), chosen.rows.end(),
                     [count](int64_t row) { return static_cast<uint64_t>(row) < count; });
}

bool gather_offsets(const ChosenRows& chosen, std::span<int64_t> to) {
  if (to.size() != chosen.rows.size() + 1 || !are_rows(chosen)) return false;
  int64_t end = 0;
  to[0] = 0;
  for (size_t i = 0; i < chosen.rows.size(); ++i) {
    const int64_t* row = chosen.offsets.data() + chosen.rows[i];
    int64_t size = 0;
    if (__builtin_sub_overflow(row[1], row[0], &size) || size < 0 ||
        __builtin_add_overflow(end, size, &end)) {
      return false;
    }
    to[i + 1] = end;
  }
  return true;
}

bool gather_ragged(std::span<const uint8_t> values, const ChosenRows& chosen, size_t item,
                   std::span<const int64_t> to, std::span<uint8_t> out, size_t threads) {
  if (to.size() != chosen.rows.size() + 1 || !are_rows(chosen)) return false;
  std::vector<int64_t> from(chosen.rows.size()), sizes(chosen.rows.size());
  for (size_t i = 0; i < from.size(); ++i) {
    const int64_t* row = chosen.offsets.data() + chosen.rows[i];
    from[i] = row[0];
    if (__builtin_sub_overflow(row[1], row[0], &sizes[i])) return false;
  }
  return copy_sequences(values, {from, to.first(from.size()), sizes}, item, out, threads);
}

Bytes box_at(const Boxes& boxes, size_t reach, size_t i) {
  const size_t owner = boxes.owners.empty() ? 0 : boxes.owners[i];
  const Bytes source = owner < boxes.sources.size() ? boxes.sources[owner] : Bytes{};
  const auto offset = static_cast<uint64_t>(boxes.offsets[i]);
  const bool inside = reach <= source.size() && offset <= source.size() - reach;
  return inside ? source.subspan(offset, reach) : Bytes{};
}

bool gather_boxes(const Boxes& boxes, std::span<uint8_t> to, size_t stride, size_t at,
                  size_t threads) {
  const Reach reach(boxes.axes, boxes.run);
  const size_t count = boxes.offsets.size();
  if (boxes.run == 0 || reach.to > stride || at > stride - reach.to) return false;
  if (to.size() / stride != count || to.size() % stride != 0) return false;
  if (!boxes.owners.empty() && boxes.owners.size() != count) return false;
  bool all = true;
  for (size_t i = 0; i < count; ++i) {
    all &= boxes.offsets[i] >= 0;
    if (boxes.offsets[i] >= 0 && box_at(boxes, reach.from, i).empty()) return false;
  }
  const auto box = [&](size_t i) { return box_at(boxes, reach.from, i).data(); };
  if (all && boxes.run == stride) {
    gather(box, count, stride, to, threads);
    return true;
  }
  const size_t block = std::max<size_t>(1, kBlockBytes / stride);
  parallel_blocks(count, block, threads, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (boxes.offsets[i] < 0) continue;
      copy_box(to.data() + i * stride + at, box(i), boxes.axes, boxes.run);
    }
  });
  return true;
}

bool prefetch_boxes(const Boxes& boxes) {
  const Reach reach(boxes.axes, boxes.run);
  if (boxes.run == 0 || (!boxes.owners.empty() && boxes.owners.size() != boxes.offsets.size())) {
    return false;
  }
  return prefetch_spans(boxes.offsets.size(), [&](size_t i) {
    return boxes.offsets[i] < 0 ? Bytes{} : box_at(boxes, reach.from, i);
  });
}

}  // namespace recmap
