// Columns -> framed Examples or SequenceExamples, the same bytes protobuf's
// deterministic serialization gives. Encoding has two phases: sizes, then bytes
// at known places, so that rows are written by several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "column.h"
#include "fault.h"
#include "format.h"
#include "ragged_offsets.h"

namespace recmap {

// One column of the rows to be written, and how. Values are little-endian. The
// caller has checked the offsets with offsets_are_sound().
struct EncodeColumn {
  std::string key;
  Kind kind = Kind::kFloat;
  bool in_lists = false;  // a feature list, one Feature per step
  Dtype dtype = Dtype::kFloat32;
  uint32_t itemsize = 4;
  uint8_t ragged = 0;
  uint64_t count = 1;  // values below the ragged axes
  uint64_t step = 1;   // in_lists without ragged axes: values per step

  // Without ragged axes, row r begins at values + r * row_stride and is
  // contiguous. With them, values are contiguous.
  const uint8_t* values = nullptr;
  int64_t row_stride = 0;
  std::span<const int64_t> outer;    // rows + 1
  std::span<const int64_t> steps;    // with two ragged axes
  std::span<const int64_t> strings;  // of byte strings

  // One string holding the values' bytes, rather than a list of strings.
  bool raw() const { return kind == Kind::kBytes && dtype != Dtype::kBytes; }
  // Every row takes the same number of bytes.
  bool fixed_size() const { return ragged == 0 && !in_lists && (kind == Kind::kFloat || raw()); }
};

class RecordWriter;

class Encode {
 public:
  // `columns` sorted: features before feature lists, each by key. With `align`
  // (a power of two, 0 for none) all columns must be without ragged axes, not
  // strings and not in_lists; every record gets the same size, and payloads of
  // fixed-size columns get offsets divisible by `align`, given that the buffer
  // is written at such an offset. `lead` is put before the features of the first
  // record; with `align`, its size is a multiple of that.
  Encode(std::span<const EncodeColumn> columns, uint64_t rows, uint64_t align, size_t threads,
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
  void plan_aligned();
  bool measure_row(uint64_t row, uint64_t& size, Fault& fault);
  uint64_t entry_field_size(uint64_t row, size_t column) const;
  uint64_t map_size(uint64_t row, bool in_lists) const;
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
  bool fixed_size_;              // every record takes the same number of bytes
  uint64_t data_size_ = 0;       // of a record, if so
  std::vector<uint8_t> head_;    // header and first tag, if they are the same in all records
  std::vector<Entry> entries_;   // per column
  std::vector<uint64_t> sizes_;  // of the value message, per row and column not fixed-size
  std::vector<uint64_t> offsets_;
};

}  // namespace recmap
