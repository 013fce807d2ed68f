#include "frame.h"

#include <algorithm>
#include <mutex>

#include "parallel.h"

namespace recmap {
namespace {

// A piece smaller than this is not worth a thread.
constexpr uint64_t kMinPiece = uint64_t{1} << 20;
// Lengths may be made to look sound anywhere, each before data that is not. So much of
// it is checked in vain, and a few times the file; then only that of small records is.
constexpr uint64_t kPatience = uint64_t{1} << 30;
constexpr uint64_t kSmallRecord = 4096;

bool length_is_sound(const uint8_t* header) {
  return masked_crc32c(header, 8) == load_le<uint32_t>(header + 8);
}

void append(Scan& whole, Scan&& piece, uint64_t every) {
  if (piece.records != 0) {
    if (whole.records == 0) whole.first_length = piece.first_length;
    whole.min_length =
        whole.records == 0 ? piece.min_length : std::min(whole.min_length, piece.min_length);
    whole.max_length = std::max(whole.max_length, piece.max_length);
  }
  if (every != 0) {
    for (const uint64_t row : piece.mark_rows) whole.mark_rows.push_back(row + whole.records);
    whole.mark_offsets.insert(whole.mark_offsets.end(), piece.mark_offsets.begin(),
                              piece.mark_offsets.end());
  }
  whole.fault = piece.fault;
  whole.fault.row += whole.records;
  whole.records += piece.records;
  whole.end = piece.end;
}

}  // namespace

bool read_frame(Bytes file, uint64_t offset, bool verify, Bytes& data, Fault& fault) {
  const auto fail = [&](FaultCode code, uint64_t expected, uint64_t found) {
    fault.code = code;
    fault.offset = offset;
    fault.expected = static_cast<int64_t>(expected);
    fault.found = static_cast<int64_t>(found);
    return false;
  };
  const uint64_t left = offset < file.size() ? file.size() - offset : 0;
  if (left < kHeaderSize) return fail(FaultCode::kHeaderCut, kHeaderSize, left);
  const uint8_t* header = file.data() + offset;
  const uint64_t length = load_le<uint64_t>(header);
  const uint32_t stored = load_le<uint32_t>(header + 8);
  // The length is checked before it is believed, so that a flipped bit is not
  // reported as a cut file.
  uint8_t length_bytes[8];
  store_le(length_bytes, length);
  const uint32_t computed = masked_crc32c(length_bytes, 8);
  if (computed != stored) return fail(FaultCode::kLengthCrc, computed, stored);
  if (left < kFrameSize || length > left - kFrameSize) {
    const uint64_t needed = length > UINT64_MAX - kFrameSize ? UINT64_MAX : length + kFrameSize;
    return fail(FaultCode::kDataCut, needed, left);
  }
  data = Bytes(header + kHeaderSize, length);
  if (!verify || check_data(data, fault)) return true;
  fault.offset = offset;
  return false;
}

bool check_data(Bytes data, Fault& fault) {
  const uint32_t computed = masked_crc32c(data.data(), data.size());
  const uint32_t stored = stored_crc(data);
  if (computed == stored) return true;
  fault.code = FaultCode::kDataCrc;
  fault.expected = computed;
  fault.found = stored;
  return false;
}

void write_header(uint8_t* out, uint64_t length) {
  store_le(out, length);
  store_le(out + 8, masked_crc32c(out, 8));
}

void write_footer(uint8_t* out, Bytes data) {
  store_le(out, masked_crc32c(data.data(), data.size()));
}

Scan scan(Bytes file, uint64_t begin, uint64_t stop, uint64_t limit, uint64_t every, bool verify) {
  Scan result;
  result.begin = begin;
  stop = std::min<uint64_t>(stop, file.size());
  uint64_t at = begin;
  uint64_t next_mark = every == 0 ? UINT64_MAX : 0;
  while (at < stop && result.records < limit) {
    Bytes data;
    if (!read_frame(file, at, verify, data, result.fault)) break;
    if (result.records == 0) {
      result.min_length = result.max_length = result.first_length = data.size();
    } else {
      result.min_length = std::min<uint64_t>(result.min_length, data.size());
      result.max_length = std::max<uint64_t>(result.max_length, data.size());
    }
    if (result.records == next_mark) {
      result.mark_rows.push_back(result.records);
      result.mark_offsets.push_back(at);
      next_mark += every;
    }
    ++result.records;
    at += data.size() + kFrameSize;
  }
  result.fault.row = result.records;
  result.end = at;
  return result;
}

uint64_t find_record(Bytes file, uint64_t begin, uint64_t stop) {
  stop = std::min<uint64_t>(stop, file.size());
  uint64_t patience = kPatience + 2 * file.size();
  for (uint64_t at = begin; at < stop && file.size() - at >= kFrameSize; ++at) {
    if (!length_is_sound(file.data() + at)) continue;
    const uint64_t length = load_le<uint64_t>(file.data() + at);
    if (patience == 0 && length > kSmallRecord) continue;
    Bytes data;
    Fault fault;
    if (read_frame(file, at, true, data, fault)) return at;
    if (fault.code == FaultCode::kDataCrc) patience -= std::min(patience, length);
  }
  return stop;
}

Scan scan_parallel(Bytes file, uint64_t begin, uint64_t stop, uint64_t every, bool verify,
                   size_t threads) {
  stop = std::min<uint64_t>(stop, file.size());
  const uint64_t total = stop > begin ? stop - begin : 0;
  const uint64_t pieces = std::clamp<uint64_t>(total / kMinPiece, 1, std::max<size_t>(threads, 1));
  if (pieces == 1) return scan(file, begin, stop, UINT64_MAX, every, verify);

  const auto edge = [&](uint64_t i) { return begin + total / pieces * i; };
  const auto piece_stop = [&](uint64_t i) { return i + 1 == pieces ? stop : edge(i + 1); };
  std::vector<Scan> scans(pieces);
  parallel_blocks(pieces, 1, threads, [&](size_t i, size_t) {
    const uint64_t from = i == 0 ? begin : find_record(file, edge(i), piece_stop(i));
    scans[i] = scan(file, from, piece_stop(i), UINT64_MAX, every, verify);
  });

  Scan whole;
  whole.begin = whole.end = begin;
  for (uint64_t i = 0; i < pieces && !whole.fault; ++i) {
    if (whole.end >= piece_stop(i)) continue;  // one record spans the whole piece
    if (scans[i].begin != whole.end) {
      scans[i] = scan(file, whole.end, piece_stop(i), UINT64_MAX, every, verify);
    }
    append(whole, std::move(scans[i]), every);
  }
  return whole;
}

namespace {

// Walks from mark to record for one row after another, keeping its place.
class Locator {
 public:
  Locator(Bytes file, std::span<const uint64_t> mark_rows, std::span<const uint64_t> mark_offsets)
      : file_(file), rows_(mark_rows), offsets_(mark_offsets) {}

  // Has memory fetch what find() will want for a row.
  void prefetch(uint64_t row) const {
    const size_t mark = guess(row);
    if (mark < offsets_.size() && offsets_[mark] < file_.size()) {
      __builtin_prefetch(file_.data() + offsets_[mark]);
    }
  }

  // From the mark at or before a row to the next.
  Bytes stretch(uint64_t row) {
    if (!find_mark(row)) return {};
    const uint64_t size = file_.size();
    const uint64_t begin = std::min(offsets_[mark_], size);
    const uint64_t end = mark_ + 1 < offsets_.size() ? std::min(offsets_[mark_ + 1], size) : size;
    return begin < end ? file_.subspan(begin, end - begin) : Bytes{};
  }

  bool find(uint64_t row, uint64_t& offset, Fault& fault) {
    if (!placed_ || at_row_ > row || !covers(mark_, row)) {
      if (!find_mark(row)) {
        fault.code = FaultCode::kChanged;
        return false;
      }
      at_row_ = rows_[mark_];
      at_ = offsets_[mark_];
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
  bool covers(size_t mark, uint64_t row) const {
    return mark < rows_.size() && rows_[mark] <= row &&
           (mark + 1 == rows_.size() || row < rows_[mark + 1]);
  }

  // Marks are evenly spread but for gaps and the edges of pieces, so this is
  // usually right.
  size_t guess(uint64_t row) const {
    const uint64_t every = rows_.size() > 1 ? std::max<uint64_t>(rows_[1] - rows_[0], 1) : 1;
    return static_cast<size_t>(row / every);
  }

  bool find_mark(uint64_t row) {
    if (covers(mark_ + 1, row)) return ++mark_, true;  // the common step of a pass in order
    mark_ = guess(row);
    if (covers(mark_, row)) return true;
    const auto after = std::upper_bound(rows_.begin(), rows_.end(), row);
    mark_ = static_cast<size_t>(after - rows_.begin()) - 1;
    return after != rows_.begin();
  }

  Bytes file_;
  std::span<const uint64_t> rows_;
  std::span<const uint64_t> offsets_;
  size_t mark_ = 0;
  bool placed_ = false;
  uint64_t at_row_ = 0;
  uint64_t at_ = 0;
};

// Rows ahead of the one that is looked for whose marks are fetched.
constexpr size_t kAhead = 16;

}  // namespace

Fault locate(Bytes file, std::span<const uint64_t> mark_rows,
             std::span<const uint64_t> mark_offsets, std::span<const int64_t> rows,
             std::span<uint64_t> offsets, size_t threads) {
  const KnownFile known{file, 0, mark_rows, mark_offsets};
  return locate({&known, 1}, {}, rows, offsets, threads);
}

Bytes stretch_of(const KnownFile& file, uint64_t row) {
  if (file.stride == 0) return Locator(file.bytes, file.mark_rows, file.mark_offsets).stretch(row);
  if (row >= file.bytes.size() / file.stride) return {};
  const uint64_t begin = strided_offset(row, file.stride, file.lead);
  const uint64_t end = strided_offset(row + 1, file.stride, file.lead);
  return end <= file.bytes.size() ? file.bytes.subspan(begin, end - begin) : Bytes{};
}

Fault locate(std::span<const KnownFile> files, std::span<const uint32_t> owners,
             std::span<const int64_t> rows, std::span<uint64_t> offsets, size_t threads) {
  const auto owner = [&](size_t i) -> size_t { return owners.empty() ? 0 : owners[i]; };
  const auto locator_of = [&](size_t i) {
    const KnownFile& file = files[owner(i)];
    return Locator(file.bytes, file.mark_rows, file.mark_offsets);
  };
  constexpr size_t kBlock = 4096;
  Fault first;
  std::mutex mutex;
  parallel_blocks(rows.size(), kBlock, threads, [&](size_t begin, size_t end) {
    Locator locator = locator_of(begin);
    for (size_t i = begin; i < end; ++i) {
      if (i != begin && owner(i) != owner(i - 1)) locator = locator_of(i);
      if (const size_t next = i + kAhead; next < end) {
        const bool same = owner(next) == owner(i);
        const auto row = static_cast<uint64_t>(rows[next]);
        same ? locator.prefetch(row) : locator_of(next).prefetch(row);
      }
      const auto row = static_cast<uint64_t>(rows[i]);
      if (const KnownFile& file = files[owner(i)]; file.stride != 0) {
        offsets[i] = strided_offset(row, file.stride, file.lead);
        continue;
      }
      Fault fault;
      if (locator.find(row, offsets[i], fault)) continue;
      fault.row = i;
      const std::lock_guard lock(mutex);
      if (!first || i < first.row) first = fault;
      return;
    }
  });
  return first;
}

}  // namespace recmap
