// The copy phase, shared by decoding and checking records: the values of parsed records go to
// the buffers of columns. Decoding copies into the caller's arrays; checking copies each row into
// scratch buffers, because a value that does not convert shows only when it is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "cell_values.h"
#include "column.h"
#include "example.h"
#include "fault.h"
#include "pad.h"

namespace recmap {

// An array of rows of `width` bytes each.
struct PaddedArray {
  uint8_t* values;
  size_t width;
};

// Where the rows of a column with one ragged axis go if all get one length, cut or filled up:
// an array for every `rows` of them, of which the last may have fewer.
struct PaddedRows {
  size_t rows;
  std::span<const PaddedArray> arrays;
  Bytes fill;  // one item
  PadSides sides;
};

// The buffers of one column. Which are used depends on the column:
//   dense numbers            values
//   ragged numbers           values, outer
//   nested ragged numbers    values, outer, steps
//   ... and strings          also strings
// An array of offsets has one entry more than it has things, the first being 0.
struct ColumnBuffers {
  std::span<uint8_t> values;
  std::span<int64_t> outer;    // per row, in steps (with one ragged axis: in items)
  std::span<int64_t> steps;    // per step, in items
  std::span<int64_t> strings;  // per string, in bytes
  // Takes the values instead, if the rows are padded.
  const PaddedRows* padded = nullptr;
  std::span<uint8_t> nulls = {};  // of a nullable column, per row: becomes 1 if it is null
};

// How large the buffers must be for `rows` rows that take `total` together.
struct BufferSizes {
  uint64_t values;  // in bytes
  uint64_t outer;   // the others in entries; 0 if the column has no such offsets
  uint64_t steps;
  uint64_t strings;
};
BufferSizes buffer_sizes(const Column& column, const CellSize& total, size_t rows);

// A cell and its place in the column: what all rows before it take, and what they take together
// with it.
struct PlacedCell {
  const Cell& cell;
  size_t row;
  const CellSize& begin;
  const CellSize& end;
};

// Bytes to copy later.
struct Copy {
  uint8_t* to;
  const uint8_t* from;
  size_t size;
};

// Makes the copies, and returns the masked CRC of the record that holds the bytes: data that
// comes from memory is then read once.
uint32_t copy_and_checksum(Bytes data, std::span<Copy> copies);

// Copies of large rows that wait until a block of records has been parsed. Little else is stored
// while they are made, which makes them fast (copy_cache_lines.h).
class DeferredCopies {
 public:
  void add(const Copy& copy) { copies_.push_back(copy); }

  // Ends a record. False if no copies were added for it.
  bool end_record(size_t row, Bytes data) {
    if (copies_.size() == ended_) return false;
    records_.push_back({row, data, copies_.size() - ended_});
    ended_ = copies_.size();
    return true;
  }

  // Makes the copies. With `verify`, also checks the CRC of each record that has any; returns
  // false at the first that is damaged, with code, row, expected and found of `fault`.
  bool finish(bool verify, Fault& fault);

 private:
  struct Record {
    size_t row;
    Bytes data;
    size_t copies;
  };

  std::vector<Copy> copies_;
  std::vector<Record> records_;
  size_t ended_ = 0;  // copies that belong to ended records
};

// Whether the bytes of a cell are the bytes of a row of dense numbers: copying it cannot fail.
inline bool is_exact(const Column& column, const Cell& cell) {
  return cell.form == Cell::Form::kPacked && cell.bytes.size() == column.count * column.itemsize &&
         (column.kind == Kind::kNone || column.kind == cell.kind) &&
         (cell.kind == Kind::kBytes ||
          (cell.kind == Kind::kFloat && column.dtype == Dtype::kFloat32));
}

// Copies one row of dense numbers to `out`, or leaves that to `deferred`. On failure returns
// false and fills code, expected and found of `fault`.
inline bool copy_dense(const Column& column, const Cell& cell, std::span<uint8_t> out,
                       DeferredCopies& deferred, Fault& fault);

// Copies a measured cell of any column to its place in the buffers. Fails as copy_dense() does.
bool copy_placed(const Column& column, const PlacedCell& placed, const ColumnBuffers& buffers,
                 Fault& fault);

// The same for a column whose rows are padded. `spare` is reused from row to row.
bool copy_padded(const Column& column, const PlacedCell& placed, const ColumnBuffers& buffers,
                 std::vector<uint8_t>& spare, Fault& fault);

// Whether a row of the column is the one string that the cell holds.
bool is_one_string(const Column& column, const Cell& cell);

// Writes the offsets of such a row, and returns the copy that is left to make.
Copy place_string(const Column& column, const PlacedCell& placed, const ColumnBuffers& buffers);

// ---------------------------------------------------------------------------
// Inline, because it runs once per value.

// Converts one row of dense numbers. Fails as copy_dense() does.
bool convert_dense(const Column& column, const Cell& cell, std::span<uint8_t> out, Fault& fault);

inline bool copy_dense(const Column& column, const Cell& cell, std::span<uint8_t> out,
                       DeferredCopies& deferred, Fault& fault) {
  constexpr size_t kMinDeferred = 256;
  if (!is_exact(column, cell)) return convert_dense(column, cell, out, fault);
  if (out.size() >= kMinDeferred) {
    deferred.add({out.data(), cell.bytes.data(), out.size()});
  } else if (!out.empty()) {
    std::memcpy(out.data(), cell.bytes.data(), out.size());
  }
  return true;
}

}  // namespace recmap
