// One step of a record that holds many: the values of step i of a feature are items
// i * count to (i + 1) * count of its list. All functions are safe to call from any thread.
#pragma once

#include <cstdint>
#include <span>

#include "column.h"
#include "example.h"

namespace recmap {

// Which step to read of each record, and which columns have steps.
struct Steps {
  std::span<const int64_t> numbers = {};  // per row; empty if whole records are read
  std::span<const uint8_t> columns = {};  // per column: 1 if it has steps

  bool empty() const { return numbers.empty(); }
};

// Where the last step of a list ended, so that a later one is found from there. Use one for each
// column, and for the steps of one record only.
struct StepEnd {
  const uint8_t* list = nullptr;
  uint64_t item = 0;
  const uint8_t* at = nullptr;
};

// Narrows the cell of a column without ragged axes to one step. It becomes kMissing if the list
// ends before the step does. A string that holds the raw bytes of numbers is one item. The cell
// points into the record, or into `scratch`. False if the list is malformed.
bool take_step(const Column& column, uint64_t step, Cell& cell, Scratch& scratch, StepEnd& last);

}  // namespace recmap
