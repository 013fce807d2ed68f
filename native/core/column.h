// The columns of a dataset as the core sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "format.h"

namespace recmap {

// kOpaque is any value of a fixed size that only raw bytes can hold: float16, complex, ...
enum class Dtype : uint8_t {
  kBytes = 0,  // a byte string
  kOpaque,
  kBool,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kFloat32,
  kFloat64,
};

// How the values of one row of a column are laid out.
struct RowLayout {
  Dtype dtype = Dtype::kBytes;
  uint32_t itemsize = 1;  // bytes of a value; 1 for kBytes
  // Ragged axes, which come first in the shape of a row: 0, 1 or 2.
  uint8_t ragged = 0;
  // Values below the ragged axes: those of a whole row if there are none.
  uint64_t count = 1;
  // Without ragged axes: values in one step of a feature list that fills the row.
  uint64_t step = 1;
  // Whether the strings of kBytes must be UTF-8.
  bool text = false;
};

// What a caller wants out of each record: one Column per field of the schema.
struct Column : RowLayout {
  // Which of a record's two maps holds the feature. kAny prefers the features.
  enum class Place : uint8_t { kAny = 0, kFeatures, kLists };

  std::string key;
  Place place = Place::kAny;
  // The row to use where the feature is missing: the bytes of its values, or for kBytes the one
  // string that every value gets.
  bool has_fill = false;
  std::vector<uint8_t> fill;
  // Whether a row may be null: its feature is missing, or empty though a row has values. Below
  // the mask lies the fill value, or no items if the column is ragged.
  bool nullable = false;
  // The only kind of list that may hold the values; kNone if any that fits may.
  Kind kind = Kind::kNone;

  bool dense_numbers() const { return ragged == 0 && dtype != Dtype::kBytes; }
};

}  // namespace recmap
