// Framed records -> columns. Decoding has two phases, because the sizes of
// ragged columns are known only once every record has been seen; dense numeric
// columns are complete after the first. The CRC of the data is checked in the
// phase that reads all of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cell_values.h"
#include "column.h"
#include "example.h"
#include "fault.h"
#include "frame.h"
#include "pad.h"
#include "record_parser.h"
#include "row_files.h"

namespace recmap {

// An array of rows of `width` bytes each.
struct PaddedArray {
  uint8_t* values;
  size_t width;
};

// Rows of a column with one ragged axis, cut or filled up to one length in each array
// of `rows` rows; the last may have fewer.
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
// Offsets arrays have one more entry than they have things, the first being 0.
struct ColumnBuffers {
  std::span<uint8_t> values;
  std::span<int64_t> outer;    // per row, in steps (or items with one ragged axis)
  std::span<int64_t> steps;    // per step, in items
  std::span<int64_t> strings;  // per string, in bytes
  // Where the values of ragged numbers go instead, if their rows are padded.
  const PaddedRows* padded = nullptr;
};

// Where records lie.
struct Records {
  RowFiles files;
  std::span<const uint64_t> offsets;

  size_t size() const { return offsets.size(); }
};

class RecordParser;

// Bytes to copy once a block of records has been walked.
struct Copy {
  uint8_t* to;
  const uint8_t* from;
  size_t size;
};

// A record that was walked, and how many copies it left.
struct Walked {
  size_t row;
  Bytes data;
  size_t copies;
};

// A feature that no column reads, in the rows seen.
struct UnknownFeature {
  Kind kind = Kind::kNone;  // in the first of them; kNone of a feature list
  uint64_t rows = 0;
  uint64_t first_row = UINT64_MAX;
};

// By the map it lies in (the feature lists?) and its key.
using UnknownFeatures = std::map<std::pair<bool, std::string>, UnknownFeature>;

// Descriptions of columns that records begin with, and the first row that has each.
using Descriptions = std::map<std::string, uint64_t>;

void note_description(const RecordParser& parser, uint64_t row, Descriptions& found);
void join_descriptions(const Descriptions& more, Descriptions& all);

// Totals over all rows, from which the buffers of the second phase are sized.
using Totals = std::vector<CellSize>;

class Decode {
 public:
  // The arguments must outlive the object. With `watch`, features that no column reads
  // are counted.
  Decode(const Records& records, std::span<const Column> columns, bool verify, size_t threads,
         bool watch = false);

  // Walks all records, fills dense numeric columns, measures the others.
  // `buffers` has values set for dense numeric columns and is otherwise unread.
  Fault first(std::span<const ColumnBuffers> buffers);

  const Totals& totals() const { return totals_; }
  const UnknownFeatures& unknown() const { return unknown_; }
  const Descriptions& descriptions() const { return descriptions_; }

  // Items of the longest of some rows of a column that first() measured.
  uint64_t longest(size_t column, size_t begin, size_t end) const;

  // Fills the columns that first() only measured.
  Fault second(std::span<const ColumnBuffers> buffers);

 private:
  // When the CRC of the data is checked: while it is copied is fastest, but before
  // it is walked tells damage from a record that is merely not what was expected.
  enum class Check { kNot, kBefore, kAfter };

  void prefetch(size_t row) const;

  // The first phase.
  Fault walk_rows(std::span<const ColumnBuffers> buffers, Check check);

  // Walks one row: dense columns are filled, or left to `copies`; others measured.
  bool walk_row(size_t row, Bytes data, RecordParser& parser,
                std::span<const ColumnBuffers> buffers, std::vector<Copy>& copies, Fault& fault);

  // What a thread uses again for row after row.
  struct Spare {
    std::vector<Copy> copies;
    std::vector<uint8_t> values;
  };

  // Copies one row of the columns that were measured.
  bool copy_row(size_t row, std::span<const ColumnBuffers> buffers, Spare& spare, Fault& fault);
  CellOutput room_of(size_t row, size_t column, const ColumnBuffers& out) const;
  bool copy_measured(size_t row, size_t column, const ColumnBuffers& out, Fault& fault);
  bool copy_padded(size_t row, size_t column, const ColumnBuffers& out, Spare& spare, Fault& fault);

  struct Pending {
    Cell cell;
    CellSize start;  // a row's own tally after first(), its start after summing
  };

  Records records_;
  std::span<const Column> columns_;
  bool verify_;
  size_t threads_;
  size_t block_;
  bool watch_;
  bool measures_ = false;  // some column needs the second phase
  Totals totals_;
  std::vector<std::vector<Pending>> pending_;  // per column; rows + 1, or empty
  std::vector<Scratch> scratches_;
  UnknownFeatures unknown_;
  Descriptions descriptions_;
};

// Checks each record by decoding it and throwing the values away: the rows that
// fail, in order, each with its first fault. With `watch` those with a feature that no
// column reads fail too. `descriptions` gets those that the records begin with.
std::vector<Fault> check_rows(Bytes file, std::span<const uint64_t> offsets,
                              std::span<const Column> columns, bool verify, size_t threads,
                              bool watch = false, Descriptions* descriptions = nullptr);

}  // namespace recmap
