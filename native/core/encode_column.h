// The columns of a batch to be encoded, and how the values of one row look on the wire: how many
// bytes they take, and the bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "column.h"
#include "fault.h"
#include "format.h"
#include "record_writer.h"

namespace recmap {

// One column of the rows to be written, and how. Values are little-endian. What it refers to
// must outlive it. A caller checks is_dense() or offsets_fit() before it is encoded.
struct EncodeColumn : RowLayout {
  std::string key;
  Kind kind = Kind::kFloat;
  bool in_lists = false;  // a feature list, one Feature per step

  // Without ragged axes, row r begins at values + r * row_stride and is contiguous. With them,
  // all values are contiguous.
  const uint8_t* values = nullptr;
  int64_t row_stride = 0;
  std::span<const int64_t> outer;    // rows + 1
  std::span<const int64_t> steps;    // with two ragged axes
  std::span<const int64_t> strings;  // of byte strings
  std::span<const uint8_t> nulls;    // per row: not 0 if it is null and left out; empty if none is

  // One string that holds the bytes of the values, rather than a list of strings.
  bool raw() const { return kind == Kind::kBytes && dtype != Dtype::kBytes; }
  // Every row takes the same number of bytes.
  bool fixed_size() const {
    return ragged == 0 && !in_lists && (kind == Kind::kFloat || raw()) && nulls.empty();
  }
  bool is_null(uint64_t row) const { return !nulls.empty() && nulls[row] != 0; }

  // Numbers without ragged axes, which fill whole steps if they are in lists.
  bool is_dense() const;
  // Strings, or values below ragged axes, with sound offsets of `rows` rows into `bytes` bytes
  // of values.
  bool offsets_fit(uint64_t rows, uint64_t bytes) const;
};

// Values of a column in so many rows, strings counted as one each.
uint64_t value_count(const EncodeColumn& column, uint64_t rows);

// The size of a length-delimited field: one byte of tag, the length, the bytes.
inline uint64_t field_size(uint64_t size) { return 1 + varint_size(size) + size; }

// The largest payload a row without ragged axes can have.
inline uint64_t largest_payload(const EncodeColumn& column) {
  return column.kind == Kind::kInt64 ? column.count * 10 : column.count * column.itemsize;
}

// The size of a FloatList, Int64List or BytesList with such a payload: the packed numbers, or
// all fields of a list of strings.
inline uint64_t list_size(const EncodeColumn& column, uint64_t payload) {
  if (column.kind == Kind::kBytes && !column.raw()) return payload;
  // protobuf leaves out an empty packed field, but an empty string is a value.
  return payload == 0 && !column.raw() ? 0 : field_size(payload);
}

// The size of a map entry whose value takes so many bytes.
inline uint64_t entry_size(const EncodeColumn& column, uint64_t value) {
  return field_size(column.key.size()) + field_size(value);
}

// Measures one row: the payload of its Feature, or all steps of its FeatureList. On failure
// returns false and fills code and found of `fault`.
bool measure_values(const EncodeColumn& column, uint64_t row, uint64_t& size, Fault& fault);

// Writes a map entry up to its value, which takes so many bytes.
inline void write_key(RecordWriter& out, const EncodeColumn& column, uint64_t value) {
  out.field(kTagEntry, entry_size(column, value));
  out.field(kTagKey, column.key.size());
  out.bytes(column.key.data(), column.key.size());
  out.field(kTagValue, value);
}

// Writes the tags and lengths of a Feature up to its payload.
inline void write_feature_head(RecordWriter& out, const EncodeColumn& column, uint64_t payload) {
  const uint64_t list = list_size(column, payload);
  out.field(make_tag(static_cast<uint32_t>(column.kind), WireType::kBytes), list);
  if (list != payload) out.field(kTagPacked, payload);
}

// Write what measure_values() measured: the payload of a Feature, or the steps of a FeatureList.
void write_payload(RecordWriter& out, const EncodeColumn& column, uint64_t row);
void write_steps(RecordWriter& out, const EncodeColumn& column, uint64_t row);

}  // namespace recmap
