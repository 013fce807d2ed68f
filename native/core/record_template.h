// Short records that repeat one another. Once the layout of a record is known, another that has the
// same length and the same bytes around its payloads needs no parsing: it is compared, its
// values are copied, and the CRCs of several records are computed side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "column.h"
#include "copy_columns.h"
#include "record_parser.h"
#include "records.h"

namespace recmap {

class RecordTemplate {
 public:
  // Learns the layout of a record that the parser has just parsed, if all it holds are values
  // that can be copied as they are. The columns must outlive the object.
  void learn(Bytes data, const RecordParser& parser, std::span<const Column> columns);

  // Copies the values of the rows from `begin` to `end` into dense columns, up to the first that
  // does not repeat the layout, or with `verify` does not match its CRC. That one has to be
  // parsed, to see whether it is sound. Returns where it ended, a few rows early at times.
  // Calls go forward through the rows.
  size_t copy(const Records& records, size_t begin, size_t end, bool verify,
              std::span<const ColumnBuffers> buffers);

 private:
  static constexpr size_t kLanes = 4;

  // How the value of a column comes out of a record.
  struct Value {
    size_t column;
    size_t begin;  // in the frame
    size_t size;   // in the column
    bool one_byte_varint;
  };

  size_t copy_matching(const Records& records, size_t begin, size_t end, bool verify,
                       std::span<const ColumnBuffers> buffers) const;
  void fetch(const Records& records, size_t begin, size_t end) const;
  bool matches(const uint8_t* frame) const;
  bool crcs_match(const uint8_t* const (&frames)[kLanes]) const;
  static bool copy_value(const Value& value, const uint8_t* frame, uint8_t* to);

  size_t frame_size_ = 0;  // 0 if nothing was learned
  std::vector<uint8_t> frame_;
  std::vector<RecordParser::Range> fixed_;
  std::vector<Value> values_;
  // Records that do not repeat the layout are tried ever more rarely.
  size_t next_try_ = 0;
  size_t pause_ = 1;
};

}  // namespace recmap
