#include "record_template.h"

#include <algorithm>
#include <cstring>

#include "frame.h"

namespace recmap {
namespace {

// The CRC of a longer record keeps the CPU busy by itself, and is best computed while the
// values are copied.
constexpr size_t kLongestRecord = 1024;
// This many records of a gather are fetched from memory at once, by reading them: a CPU may ignore
// a prefetch whose page it would have to look up first.
constexpr size_t kFetchedRecords = 32;

bool equal_bytes(const uint8_t* a, const uint8_t* b, size_t n) {
  if (n < 8) return std::memcmp(a, b, n) == 0;
  uint64_t differing = load_le<uint64_t>(a + n - 8) ^ load_le<uint64_t>(b + n - 8);
  for (size_t i = 0; i + 8 < n; i += 8) {
    differing |= load_le<uint64_t>(a + i) ^ load_le<uint64_t>(b + i);
  }
  return differing == 0;
}

// Sizes are those of short rows, for which a call of memcpy takes longer than the copy.
void copy_bytes(uint8_t* to, const uint8_t* from, size_t n) {
  if (n < 8) {
    for (size_t i = 0; i < n; ++i) to[i] = from[i];
    return;
  }
  const auto last = load_le<uint64_t>(from + n - 8);
  for (size_t i = 0; i + 8 < n; i += 8) store_le(to + i, load_le<uint64_t>(from + i));
  store_le(to + n - 8, last);
}

bool is_integer(Dtype dtype) {
  switch (dtype) {
    case Dtype::kInt8:
    case Dtype::kInt16:
    case Dtype::kInt32:
    case Dtype::kInt64:
    case Dtype::kUint8:
    case Dtype::kUint16:
    case Dtype::kUint32:
    case Dtype::kUint64:
      return true;
    default:
      return false;
  }
}

bool is_one_byte_varint(const Column& column, const Cell& cell) {
  return cell.form == Cell::Form::kPacked && cell.kind == Kind::kInt64 && cell.bytes.size() == 1 &&
         column.count == 1 && is_integer(column.dtype) &&
         (column.kind == Kind::kNone || column.kind == Kind::kInt64);
}

void touch(const uint8_t* at) { static_cast<void>(*static_cast<const volatile uint8_t*>(at)); }

}  // namespace

void RecordTemplate::learn(Bytes data, const RecordParser& parser,
                           std::span<const Column> columns) {
  if (data.size() + kFrameSize == frame_size_ && matches(data.data() - kHeaderSize)) return;
  frame_size_ = 0;
  if (data.size() > kLongestRecord || !parser.learned(data)) return;
  if (!parser.unknown().empty() || !parser.description().empty()) return;
  const uint8_t* const frame = data.data() - kHeaderSize;
  values_.clear();
  for (size_t c = 0; c < columns.size(); ++c) {
    const Cell& cell = parser.cells()[c];
    if (!columns[c].dense_numbers()) return;
    const bool varint = is_one_byte_varint(columns[c], cell);
    if (!varint && !is_exact(columns[c], cell)) return;
    values_.push_back({.column = c,
                       .begin = static_cast<size_t>(cell.bytes.data() - frame),
                       .size = columns[c].count * columns[c].itemsize,
                       .one_byte_varint = varint});
  }
  fixed_.assign(1, {0, kHeaderSize});
  for (const RecordParser::Range& range : parser.fixed()) {
    const size_t begin = kHeaderSize + range.begin;
    if (fixed_.back().begin + fixed_.back().size == begin) {
      fixed_.back().size += range.size;
    } else {
      fixed_.push_back({begin, range.size});
    }
  }
  frame_size_ = data.size() + kFrameSize;
  frame_.assign(frame, frame + frame_size_);
}

size_t RecordTemplate::copy(const Records& records, size_t begin, size_t end, bool verify,
                            std::span<const ColumnBuffers> buffers) {
  constexpr size_t kLongestPause = 64;
  if (frame_size_ == 0 || begin < next_try_) return begin;
  // What the first record of a file taught may be longer than the others must be.
  if (records.in_order() && records.distance(begin) != frame_size_) return begin;
  const size_t done = copy_matching(records, begin, end, verify, buffers);
  pause_ = done == begin ? std::min(2 * pause_, kLongestPause) : 1;
  next_try_ = done + pause_;
  return done;
}

size_t RecordTemplate::copy_matching(const Records& records, size_t begin, size_t end, bool verify,
                                     std::span<const ColumnBuffers> buffers) const {
  size_t row = begin;
  size_t fetched = row;
  while (end - row >= kLanes) {
    const uint8_t* frames[kLanes];
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const Bytes file = records.file(row + lane);
      const uint64_t offset = records.offset(row + lane);
      if (offset > file.size() || file.size() - offset < frame_size_) return row;
      frames[lane] = file.data() + offset;
    }
    if (row >= fetched && !records.in_order()) {
      fetched = std::min(end, row + kFetchedRecords);
      fetch(records, row, fetched);
    }
    for (const uint8_t* const frame : frames) {
      if (!matches(frame)) return row;
    }
    if (verify && !crcs_match(frames)) return row;
    for (const Value& value : values_) {
      uint8_t* const to = buffers[value.column].values.data() + row * value.size;
      for (size_t lane = 0; lane < kLanes; ++lane) {
        if (!copy_value(value, frames[lane], to + lane * value.size)) return row;
      }
    }
    row += kLanes;
  }
  return row;
}

void RecordTemplate::fetch(const Records& records, size_t begin, size_t end) const {
  for (size_t row = begin; row < end; ++row) {
    const Bytes file = records.file(row);
    const uint64_t offset = records.offset(row);
    if (offset > file.size() || file.size() - offset < frame_size_) return;
    const uint8_t* const frame = file.data() + offset;
    for (size_t at = 0; at < frame_size_; at += 64) touch(frame + at);
    touch(frame + frame_size_ - 1);
  }
}

bool RecordTemplate::matches(const uint8_t* frame) const {
  for (const RecordParser::Range& range : fixed_) {
    if (!equal_bytes(frame + range.begin, frame_.data() + range.begin, range.size)) return false;
  }
  return true;
}

bool RecordTemplate::crcs_match(const uint8_t* const (&frames)[kLanes]) const {
  const uint8_t* data[kLanes];
  for (size_t lane = 0; lane < kLanes; ++lane) data[lane] = frames[lane] + kHeaderSize;
  uint32_t crcs[kLanes];
  const size_t size = frame_size_ - kFrameSize;
  crc32c_four(data, size, crcs);
  uint32_t differing = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    differing |= mask_crc(crcs[lane]) ^ load_le<uint32_t>(data[lane] + size);
  }
  return differing == 0;
}

bool RecordTemplate::copy_value(const Value& value, const uint8_t* frame, uint8_t* to) {
  if (!value.one_byte_varint) {
    copy_bytes(to, frame + value.begin, value.size);
    return true;
  }
  const uint8_t byte = frame[value.begin];
  if (byte >= 0x80) return false;
  std::memset(to, 0, value.size);
  *to = byte;
  return true;
}

}  // namespace recmap
