// Framed records -> columns. Decoding has two phases, because the sizes of
// ragged columns are known only once every record has been seen; dense numeric
// columns are complete after the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "columns.h"
#include "example.h"
#include "fault.h"
#include "frame.h"
#include "values.h"

namespace recmap {

// The buffers of one column. Which are used depends on the column:
//   dense numbers            values
//   ragged numbers           values, outer
//   nested ragged numbers    values, outer, steps
//   ... and strings          also strings
// Offsets arrays have one more entry than they have things, the first being 0.
struct ColumnBuffers {
  std::span<uint8_t> values;
  std::span<int64_t> outer;    // per row, in steps (or items with one ragged axis)
  std::span<int64_t> steps;    // per step, in items
  std::span<int64_t> strings;  // per string, in bytes
};

class Walker;

// Totals over all rows, from which the buffers of the second phase are sized.
using Totals = std::vector<Tally>;

class Decode {
 public:
  // Records of `file` at `offsets`. All arguments must outlive the object.
  Decode(Bytes file, std::span<const uint64_t> offsets, std::span<const Column> columns,
         bool verify, size_t threads);

  // Walks all records, fills dense numeric columns, measures the others.
  // `buffers` has values set for dense numeric columns and is otherwise unread.
  Fault first(std::span<const ColumnBuffers> buffers);

  const Totals& totals() const { return totals_; }

  // Fills the columns that first() only measured.
  Fault second(std::span<const ColumnBuffers> buffers);

 private:
  // Reads one row: dense columns are filled, others measured.
  bool read_row(size_t row, Walker& walker, std::span<const ColumnBuffers> buffers, Fault& fault);

  // Copies one row of a column that was measured.
  bool copy_row(size_t row, size_t column, const ColumnBuffers& out, Fault& fault);

  struct Pending {
    Cell cell;
    Tally start;  // a row's own tally after first(), its start after summing
  };

  Bytes file_;
  std::span<const uint64_t> offsets_;
  std::span<const Column> columns_;
  bool verify_;
  size_t threads_;
  size_t block_;
  Totals totals_;
  std::vector<std::vector<Pending>> pending_;  // per column; rows + 1, or empty
  std::vector<Scratch> scratches_;
};

// Checks each record by decoding it and throwing the values away: the rows that
// fail, in order, each with its first fault.
std::vector<Fault> check_rows(Bytes file, std::span<const uint64_t> offsets,
                              std::span<const Column> columns, bool verify, size_t threads);

}  // namespace recmap
