// Framed records -> columns, in two phases, because the sizes of ragged columns are known only
// once every record has been seen:
//
//   parse()   reads and parses all records (record_reader.h), copies dense numbers, and
//             measures the other columns (cell_values.h)
//   copy()    copies the other columns (copy_columns.h) into buffers of the measured sizes
//
// The CRC of the data is checked in the phase that reads all of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "buffer_pool.h"
#include "column.h"
#include "copy_columns.h"
#include "fault.h"
#include "record_reader.h"
#include "records.h"

namespace recmap {

// Decodes one set of records, once. Its calls run on the threads they are told to use and return
// when these have ended; the object itself belongs to one thread.
class Decoder {
 public:
  // What the arguments refer to must outlive the object. Every `rows_per_array` rows of a padded
  // column become one array. Pass 0 if no column is padded.
  Decoder(const Records& records, std::span<const Column> columns, const ReadOptions& options,
          size_t rows_per_array = 0);

  // `buffers` has values for the columns of dense numbers, and is not read otherwise.
  // Returns the fault of the first record that cannot be read.
  Fault parse(std::span<const ColumnBuffers> buffers);

  // Known after parse():
  // What all rows of a column take together; for buffer_sizes().
  const CellSize& total(size_t column) const { return totals_[column]; }
  // Items of the longest row of an array of a column that was measured.
  uint64_t longest(size_t column, size_t array) const {
    return longest_[array * columns_.size() + column].load(std::memory_order_relaxed);
  }
  const Findings& findings() const { return findings_; }

  // `buffers` has all buffers of the measured columns. Returns the fault of the first record
  // that is damaged, has a value that does not convert, or changed since parse().
  Fault copy(std::span<const ColumnBuffers> buffers);

 private:
  // When the CRC of the data is checked. While it is copied is fastest; before it is parsed
  // tells damage from a record that merely holds something else.
  enum class Checksum { kNone, kBeforeParse, kWithCopy };

  // A measured cell and what it takes.
  struct Measured {
    Cell cell;
    CellSize size;
  };

  // What a thread has of the steps of one record.
  struct StepCells {
    std::vector<Cell> cells;
    std::vector<StepEnd> ends;  // per column
    const uint8_t* record = nullptr;
  };

  Fault parse_records(std::span<const ColumnBuffers> buffers, Checksum checksum);
  bool parse_record(size_t row, Checksum checksum, std::span<const ColumnBuffers> buffers,
                    RecordReader& reader, StepCells& step, DeferredCopies& deferred, Fault& fault);
  bool read_columns(size_t row, std::span<const Cell> cells, std::span<const ColumnBuffers> buffers,
                    DeferredCopies& deferred, Fault& fault);
  bool take_steps(size_t row, RecordReader& reader, StepCells& step, Fault& fault) const;
  void sum_sizes();
  void measure_block(size_t begin, size_t end);
  void grow_by_row(size_t row, std::span<CellSize> sizes) const;
  void prefetch(size_t row) const;

  // What a thread reuses from row to row.
  struct Spare {
    std::vector<Copy> copies;
    std::vector<uint8_t> values;
    // Per column: what all rows before this one take, and what they take together with it.
    std::vector<CellSize> begins;
    std::vector<CellSize> ends;
  };

  bool copy_record(size_t row, std::span<const ColumnBuffers> buffers, Spare& spare, Fault& fault);
  bool copy_strings_and_check(size_t row, std::span<const ColumnBuffers> buffers, Spare& spare,
                              Fault& fault);
  PlacedCell placed(size_t row, size_t column, const Spare& spare) const;

  Records records_;
  std::span<const Column> columns_;
  ReadOptions options_;
  size_t rows_per_array_;
  size_t block_;
  bool measures_ = false;  // whether some column is left to copy()
  std::vector<CellSize> totals_;
  std::vector<PooledArray<Measured>> measured_;  // per column: the rows, or none
  // Per block and column: what its rows take; after parse(), what all rows before it take.
  std::vector<CellSize> block_sizes_;
  // Per array and column: the items of the longest row.
  std::vector<std::atomic<uint64_t>> longest_;
  std::vector<Scratch> scratches_;  // what measured cells point into
  Findings findings_;
};

}  // namespace recmap
