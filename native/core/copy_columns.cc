#include "copy_columns.h"

#include <algorithm>
#include <cstring>

#include "copy_cache_lines.h"
#include "frame.h"

namespace recmap {
namespace {

// The C library's copy is made for longer rows than these.
constexpr size_t kMaxByLines = 16 << 10;
// Records of a gather that are not longer than this end before the CPU notices that they are read
// in order, so all their lines are prefetched, this many records ahead.
constexpr size_t kMaxPrefetched = 16 << 10;
constexpr size_t kPrefetchDistance = 2;

// Values in an item, which is what CellSize counts.
uint64_t values_per_item(const Column& column) { return column.ragged == 0 ? 1 : column.count; }

void prefetch(Bytes data) {
  if (data.size() > kMaxPrefetched) return;
  for (size_t at = 0; at < data.size(); at += 64) __builtin_prefetch(data.data() + at);
}

// Whether a record does not follow another in the file.
bool apart(Bytes record, Bytes next) {
  const auto address = [](Bytes data) { return reinterpret_cast<uintptr_t>(data.data()); };
  return address(next) != address(record) + record.size() + kFrameSize;
}

void make_copy(const Copy& copy) {
  if (copy.size <= kMaxByLines) {
    copy_cache_lines(copy.to, copy.from, copy.size);
  } else {
    std::memcpy(copy.to, copy.from, copy.size);
  }
}

// Where the values of a cell go. Writes the row's own offset.
CellOutput output_of(const Column& column, const PlacedCell& placed, const ColumnBuffers& buffers) {
  const CellSize& begin = placed.begin;
  const CellSize& end = placed.end;
  const uint64_t per_item = values_per_item(column);
  const bool strings = column.dtype == Dtype::kBytes;
  uint8_t* const values = buffers.values.data();
  CellOutput output;
  output.base = values;
  output.at = values + (strings ? begin.bytes : begin.items * per_item * column.itemsize);
  output.end = values + (strings ? end.bytes : end.items * per_item * column.itemsize);
  if (strings) {
    output.strings = buffers.strings.data() + 1 + begin.items * per_item;
    output.strings_end = buffers.strings.data() + 1 + end.items * per_item;
  }
  if (column.ragged != 0) buffers.outer[placed.row + 1] = static_cast<int64_t>(end.steps);
  if (column.ragged == 2) {
    output.steps = buffers.steps.data() + 1 + begin.steps;
    output.steps_end = buffers.steps.data() + 1 + end.steps;
    output.first_item = static_cast<int64_t>(begin.items);
  }
  return output;
}

}  // namespace

BufferSizes buffer_sizes(const Column& column, const CellSize& total, size_t rows) {
  const bool strings = column.dtype == Dtype::kBytes;
  const uint64_t values = total.items * values_per_item(column);
  return {.values = strings ? total.bytes : values * column.itemsize,
          .outer = column.ragged >= 1 ? rows + 1 : 0,
          .steps = column.ragged == 2 ? total.steps + 1 : 0,
          .strings = strings ? values + 1 : 0};
}

uint32_t copy_and_checksum(Bytes data, std::span<Copy> copies) {
  if (copies.size() > 1) {
    std::sort(copies.begin(), copies.end(),
              [](const Copy& a, const Copy& b) { return a.from < b.from; });
  }
  const uint8_t* at = data.data();
  const uint8_t* const end = at + data.size();
  uint32_t crc = 0;
  for (const Copy& copy : copies) {
    if (copy.from < at || copy.from > end || copy.size > static_cast<size_t>(end - copy.from)) {
      make_copy(copy);  // from scratch, not from the record
      continue;
    }
    crc = crc32c_extend(crc, at, static_cast<size_t>(copy.from - at));
    crc = crc32c_copy(crc, copy.from, copy.size, copy.to);
    at = copy.from + copy.size;
  }
  return mask_crc(crc32c_extend(crc, at, static_cast<size_t>(end - at)));
}

bool DeferredCopies::finish(bool verify, Fault& fault) {
  if (!verify) {
    for (const Copy& copy : copies_) make_copy(copy);
    return true;
  }
  std::span<Copy> left(copies_);
  for (size_t i = 0; i < records_.size(); ++i) {
    const Record& record = records_[i];
    if (i + kPrefetchDistance < records_.size() && apart(record.data, records_[i + 1].data)) {
      prefetch(records_[i + kPrefetchDistance].data);
    }
    if (copy_and_checksum(record.data, left.first(record.copies)) != stored_crc(record.data)) {
      if (check_data(record.data, fault)) fault.code = FaultCode::kChanged;
      fault.row = record.row;
      return false;
    }
    left = left.subspan(record.copies);
  }
  return true;
}

bool convert_dense(const Column& column, const Cell& cell, std::span<uint8_t> out, Fault& fault) {
  // One int64, by far the most common feature beside the payload.
  if (cell.form == Cell::Form::kPacked && cell.kind == Kind::kInt64 &&
      column.dtype == Dtype::kInt64 && column.count == 1) {
    Cursor cursor(cell.bytes);
    uint64_t value;
    if (cursor.varint(value) && cursor.done()) {
      store_le(out.data(), value);
      return true;
    }
  }
  CellSize size;
  if (!measure_cell(column, cell, size, fault)) return false;
  CellOutput output;
  output.at = out.data();
  output.end = out.data() + out.size();
  return copy_cell(column, cell, output, fault);
}

bool copy_placed(const Column& column, const PlacedCell& placed, const ColumnBuffers& buffers,
                 Fault& fault) {
  return copy_cell(column, placed.cell, output_of(column, placed, buffers), fault);
}

bool copy_padded(const Column& column, const PlacedCell& placed, const ColumnBuffers& buffers,
                 std::vector<uint8_t>& spare, Fault& fault) {
  const PaddedRows& rows = *buffers.padded;
  const PaddedArray& array = rows.arrays[placed.row / rows.rows];
  buffers.outer[placed.row + 1] = static_cast<int64_t>(placed.end.items);
  const size_t size = (placed.end.items - placed.begin.items) * rows.fill.size();
  const size_t kept = std::min(size, array.width);
  const size_t gap = rows.sides.fill_left ? array.width - kept : 0;
  uint8_t* const place = array.values + placed.row % rows.rows * array.width;
  // What is cut off is read too, to see whether it is sound.
  const bool whole = size == kept;
  if (!whole) spare.resize(size);
  uint8_t* const values = whole ? place + gap : spare.data();
  CellOutput output;
  output.at = values;
  output.end = values + size;
  if (!copy_cell(column, placed.cell, output, fault)) return false;
  if (!whole && kept != 0) {
    std::memcpy(place, values + (rows.sides.keep_last ? size - kept : 0), kept);
  }
  fill_items(place, gap, rows.fill);
  fill_items(place + gap + kept, array.width - gap - kept, rows.fill);
  return true;
}

bool is_one_string(const Column& column, const Cell& cell) {
  // Text is checked when it is copied, which a copy with a checksum does not do.
  return column.dtype == Dtype::kBytes && !column.text && column.ragged == 0 && column.count == 1 &&
         cell.form == Cell::Form::kPacked && cell.kind == Kind::kBytes && !cell.bytes.empty();
}

Copy place_string(const Column& column, const PlacedCell& placed, const ColumnBuffers& buffers) {
  const CellOutput output = output_of(column, placed, buffers);
  *output.strings = output.end - output.base;
  return {output.at, placed.cell.bytes.data(), placed.cell.bytes.size()};
}

}  // namespace recmap
