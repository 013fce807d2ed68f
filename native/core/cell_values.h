// The values of one cell: counting them and converting them to a column's
// dtype. Conversions never lose a value: float lists become float32, bit for bit, or
// float64 (which makes a signalling NaN a quiet one), int64 lists any integer they
// fit, raw bytes whatever the column says.
#pragma once

#include <cstdint>

#include "column.h"
#include "example.h"
#include "fault.h"

namespace recmap {

struct CellSize {
  uint64_t steps = 0;  // along the first ragged axis
  uint64_t items = 0;  // below the last ragged axis; strings of a bytes column
  uint64_t bytes = 0;  // of the strings of a bytes column
};

// A place to put values, with its end. `strings` points at the end offset of
// the next string, `string_base` is what that offset counts from.
struct CellOutput {
  uint8_t* at = nullptr;
  const uint8_t* end = nullptr;
  const uint8_t* base = nullptr;  // of the column's values
  int64_t* strings = nullptr;
  const int64_t* strings_end = nullptr;
  // With two ragged axes: where the end of each step goes, in items counted from
  // the column's first.
  int64_t* steps = nullptr;
  const int64_t* steps_end = nullptr;
  int64_t first_item = 0;

  bool full() const { return at == end && strings == strings_end && steps == steps_end; }
};

// Counts what the cell holds and checks it against the column's kind and shape.
// Fills code, expected and found of `fault` and returns false if it does not fit.
bool measure(const Column& column, const Cell& cell, CellSize& tally, Fault& fault);

// Writes the values of the cell, as measured, and moves `room` past them. Checks
// the room even though it was measured: the file may change meanwhile.
bool copy_cell(const Column& column, const Cell& cell, CellOutput& room, Fault& fault);

}  // namespace recmap
