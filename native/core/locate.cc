#include "locate.h"

#include <algorithm>
#include <atomic>

#include "first_fault.h"
#include "frame.h"
#include "parallel.h"

namespace recmap {
namespace {

constexpr size_t kBlockRows = 1024;
// The anchors of rows this far ahead are fetched while one row is looked for.
constexpr size_t kPrefetchDistance = 16;

// Walks from an anchor to one row after another of a file, and keeps its place.
class Locator {
 public:
  explicit Locator(const IndexedFile& file)
      : file_(file.bytes), rows_(file.anchor_rows), offsets_(file.anchor_offsets) {}

  // Fetches the memory where find() will begin to look for a row.
  void prefetch(uint64_t row) const {
    const size_t anchor = guess(row);
    if (anchor < offsets_.size() && offsets_[anchor] < file_.size()) {
      __builtin_prefetch(file_.data() + offsets_[anchor]);
    }
  }

  // From the anchor at or before a row to the next.
  Bytes span(uint64_t row) {
    if (!find_anchor(row)) return {};
    const uint64_t size = file_.size();
    const uint64_t begin = std::min(offsets_[anchor_], size);
    const uint64_t end =
        anchor_ + 1 < offsets_.size() ? std::min(offsets_[anchor_ + 1], size) : size;
    return begin < end ? file_.subspan(begin, end - begin) : Bytes{};
  }

  bool find(uint64_t row, uint64_t& offset, Fault& fault) {
    if (!placed_ || at_row_ > row || !covers(anchor_, row)) {
      if (!find_anchor(row)) {
        fault.code = FaultCode::kChanged;
        return false;
      }
      at_row_ = rows_[anchor_];
      at_ = offsets_[anchor_];
      placed_ = true;
    }
    for (; at_row_ < row; ++at_row_) {
      Bytes data;
      if (!read_frame(file_, at_, false, data, fault)) return false;
      at_ += data.size() + kFrameSize;
    }
    offset = at_;
    return true;
  }

 private:
  bool covers(size_t anchor, uint64_t row) const {
    return anchor < rows_.size() && rows_[anchor] <= row &&
           (anchor + 1 == rows_.size() || row < rows_[anchor + 1]);
  }

  // Anchors are evenly spread except at gaps and where threads entered the file, so this is
  // usually right.
  size_t guess(uint64_t row) const {
    const uint64_t every = rows_.size() > 1 ? std::max<uint64_t>(rows_[1] - rows_[0], 1) : 1;
    return static_cast<size_t>(row / every);
  }

  bool find_anchor(uint64_t row) {
    if (covers(anchor_ + 1, row)) return ++anchor_, true;  // the usual step of a pass in order
    anchor_ = guess(row);
    if (covers(anchor_, row)) return true;
    const auto after = std::upper_bound(rows_.begin(), rows_.end(), row);
    anchor_ = static_cast<size_t>(after - rows_.begin()) - 1;
    return after != rows_.begin();
  }

  Bytes file_;
  std::span<const uint64_t> rows_;
  std::span<const uint64_t> offsets_;
  size_t anchor_ = 0;
  bool placed_ = false;
  uint64_t at_row_ = 0;
  uint64_t at_ = 0;
};

}  // namespace

Bytes locate_span(const IndexedFile& file, uint64_t row) {
  if (file.stride == 0) return Locator(file).span(row);
  if (row >= file.bytes.size() / file.stride) return {};
  const uint64_t begin = strided_offset(row, file.stride, file.lead);
  const uint64_t end = strided_offset(row + 1, file.stride, file.lead);
  return end <= file.bytes.size() ? file.bytes.subspan(begin, end - begin) : Bytes{};
}

Fault locate(std::span<const IndexedFile> files, std::span<const uint32_t> owners,
             std::span<const int64_t> rows, std::span<uint64_t> offsets, size_t threads) {
  const auto owner = [&](size_t i) -> size_t { return owners.empty() ? 0 : owners[i]; };
  FirstFault faults;
  parallel_blocks(rows.size(), kBlockRows, threads, [&](size_t begin, size_t end) {
    Locator locator(files[owner(begin)]);
    for (size_t i = begin; i < end; ++i) {
      const IndexedFile& file = files[owner(i)];
      if (i != begin && owner(i) != owner(i - 1)) locator = Locator(file);
      if (const size_t next = i + kPrefetchDistance; next < end) {
        const auto row = static_cast<uint64_t>(rows[next]);
        owner(next) == owner(i) ? locator.prefetch(row) : Locator(files[owner(next)]).prefetch(row);
      }
      const auto row = static_cast<uint64_t>(rows[i]);
      if (file.stride != 0) {
        offsets[i] = strided_offset(row, file.stride, file.lead);
        continue;
      }
      Fault fault;
      if (locator.find(row, offsets[i], fault)) continue;
      fault.row = i;
      return faults.add(fault);
    }
  });
  return faults.get();
}

bool divide_among_files(std::span<const int64_t> starts, std::span<const int64_t> rows,
                        std::span<int64_t> numbers, std::span<uint32_t> owners, size_t threads) {
  std::atomic<bool> sound{starts.size() > 1 && starts.size() <= UINT32_MAX};
  if (!sound) return rows.empty();
  parallel_blocks(rows.size(), kBlockRows, threads, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const auto after = std::upper_bound(starts.begin(), starts.end(), rows[i]);
      if (after == starts.begin() || after == starts.end()) {
        sound = false;
        return;
      }
      owners[i] = static_cast<uint32_t>(after - starts.begin() - 1);
      numbers[i] = rows[i] - *(after - 1);
    }
  });
  return sound;
}

}  // namespace recmap
