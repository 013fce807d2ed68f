// Columns -> framed Examples or SequenceExamples, with the same bytes as protobuf's deterministic
// serialization. Encoding has two phases, so that several threads can write at once:
//
//   measure()   sizes all records, which gives their offsets
//   write()     writes the bytes
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
  // Columns are sorted: features before feature lists, each by key. With `align` (a power of two;
  // 0 for none), no column may have ragged axes or nulls, be of strings or in lists: every record
  // gets the same size, and payloads of fixed-size columns lie at multiples of `align` if the
  // output begins at one. `lead` is put before the features of the first record; with `align`, its
  // size is a multiple of that. What the arguments refer to must outlive the object.
  Encoder(std::span<const EncodeColumn> columns, uint64_t rows, uint64_t align, size_t threads,
          Bytes lead = {});

  // Returns the fault of the first row with a value that does not fit its list, or of a record
  // over 2 GiB.
  Fault measure();

  // Known after measure(): the offset of each record in the output, and the size of the output.
  std::span<const uint64_t> offsets() const { return offsets_; }

  // Writes all records to `out`, which has offsets().back() bytes. The fault is kChanged if the
  // values are no longer those that were measured.
  Fault write(uint8_t* out) const;

 private:
  // The bytes before the payload of a fixed-size column, and in the aligned layout where the entry
  // begins, counted from the first byte of the data.
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
  void write_fixed_entry(RecordWriter& out, uint64_t row, size_t c) const;
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
