// The values of one cell: counting them and converting them to a column's dtype. Conversions
// never lose a value: float lists become float32, bit for bit, or float64 (which makes a
// signalling NaN a quiet one); int64 lists become any integer type they fit; raw bytes become
// whatever the column says. All functions are safe to call from any thread.
#pragma once

#include <cstdint>

#include "column.h"
#include "example.h"
#include "fault.h"

namespace recmap {

// What a cell, or several rows of a column, take.
struct CellSize {
  uint64_t steps = 0;  // along the first ragged axis
  uint64_t items = 0;  // below the last ragged axis; strings of a bytes column
  uint64_t bytes = 0;  // of the strings of a bytes column

  CellSize& operator+=(const CellSize& other) {
    steps += other.steps;
    items += other.items;
    bytes += other.bytes;
    return *this;
  }
};

// Where the values of a cell go.
struct CellOutput {
  uint8_t* at = nullptr;
  const uint8_t* end = nullptr;
  // Of a bytes column: where the end of each string goes, in bytes from `base`.
  const uint8_t* base = nullptr;
  int64_t* strings = nullptr;
  const int64_t* strings_end = nullptr;
  // With two ragged axes: where the end of each step goes, in items of the column, of which
  // `first_item` come before this cell.
  int64_t* steps = nullptr;
  const int64_t* steps_end = nullptr;
  int64_t first_item = 0;

  bool full() const { return at == end && strings == strings_end && steps == steps_end; }
};

// Counts what the cell holds and checks it against the column's kind and shape. On failure
// returns false and fills code, expected and found of `fault`.
bool measure_cell(const Column& column, const Cell& cell, CellSize& size, Fault& fault);

// Whether the row of a nullable column is null.
bool is_null(const Column& column, const Cell& cell);

// Writes the values of a measured cell, which must fill `output`. Its ends are checked all the
// same, because the file may change meanwhile: kChanged. Fails as measure_cell() does.
bool copy_cell(const Column& column, const Cell& cell, CellOutput output, Fault& fault);

}  // namespace recmap
