// Columns -> framed Examples or SequenceExamples, the same bytes protobuf's
// deterministic serialization gives. Encoding has two phases: sizes, then bytes
// at known places, so that rows are written by several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "encode_column.h"
#include "fault.h"
#include "format.h"
#include "record_writer.h"

namespace recmap {

// Encodes one batch, once. Its calls run on the threads it is told to use and return when these
// have ended; the object itself belongs to one thread.
class Encoder {
 public:
  // `columns` sorted: features before feature lists, each by key. With `align`
  // (a power of two, 0 for none) all columns must be without ragged axes, not
  // strings and not in_lists; every record gets the same size, and payloads of
  // fixed-size columns get offsets divisible by `align`, given that the buffer
  // is written at such an offset. `lead` is put before the features of the first
  // record; with `align`, its size is a multiple of that.
  Encoder(std::span<const EncodeColumn> columns, uint64_t rows, uint64_t align, size_t threads,
          Bytes lead = {});

  // Sizes all records. The fault names row and column of a value that does not
  // fit its list, or the row of a record over 2 GiB.
  Fault measure();

  // Offset of each record in the output, and the output's size at the end.
  std::span<const uint64_t> offsets() const { return offsets_; }

  // Writes all records into `out`, which has offsets().back() bytes. The fault is
  // kChanged if the values are no longer those that were measured.
  Fault write(uint8_t* out) const;

 private:
  // The bytes before a fixed-size column's payload, and in the aligned layout
  // where its entry begins, counted from the record's data.
  struct Entry {
    std::vector<uint8_t> prefix;
    uint64_t begin = 0;
  };

  void plan_prefixes();
  void plan_head();
  void plan_aligned();
  Fault measure_rows();
  bool measure_row(uint64_t row, uint64_t& size, Fault& fault);
  Fault sum_sizes();
  uint64_t entry_field_size(uint64_t row, size_t column) const;
  uint64_t map_size(uint64_t row, bool in_lists) const;
  bool write_record(uint64_t row, uint8_t* record) const;
  void write_head(RecordWriter& out, uint64_t size) const;
  void write_map(RecordWriter& out, uint64_t row, bool in_lists) const;
  void write_entry(RecordWriter& out, uint64_t row, size_t column) const;
  void write_aligned(RecordWriter& out, uint64_t row) const;
  uint64_t lead_size(uint64_t row) const { return row == 0 ? lead_.size() : 0; }

  std::span<const EncodeColumn> columns_;
  uint64_t rows_;
  uint64_t align_;
  size_t threads_;
  Bytes lead_;
  bool fixed_columns_;           // every column takes the same number of bytes in every record
  bool fixed_size_;              // every record takes the same number of bytes
  uint64_t data_size_ = 0;       // of a record, if so
  std::vector<uint8_t> head_;    // header and first tag, if they are the same in all records
  std::vector<Entry> entries_;   // per column
  std::vector<uint64_t> sizes_;  // of the value message, per row and column not fixed-size
  std::vector<uint64_t> offsets_;
};

}  // namespace recmap
