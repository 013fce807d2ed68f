// Both phases of a decode in one call, into buffers of exactly the measured
// sizes, so that a sanitizer sees any overrun.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "check_records.h"
#include "column.h"
#include "decode.h"

namespace recmap {

struct DecodedColumn {
  std::vector<uint8_t> values;
  std::vector<int64_t> outer;
  std::vector<int64_t> steps;
  std::vector<int64_t> strings;
  std::vector<uint8_t> nulls;  // of a nullable column, per row
};

struct Decoded {
  Fault fault;
  std::vector<DecodedColumn> columns;
  Descriptions descriptions;
};

inline void allocate(const BufferSizes& sizes, DecodedColumn& out) {
  out.values.resize(sizes.values);
  out.outer.resize(sizes.outer, -1);
  out.steps.resize(sizes.steps, -1);
  out.strings.resize(sizes.strings, -1);
}

inline RecordCheck check_all(Bytes file, std::span<const uint64_t> offsets,
                             std::span<const Column> columns, size_t threads = 1) {
  const IndexedFile indexed{.bytes = file};
  return check_records({{&indexed, 1}, offsets}, columns, {.threads = threads});
}

// `between` runs between the phases.
template <typename Between>
Decoded decode(Bytes file, std::span<const uint64_t> offsets, std::span<const Column> columns,
               const ReadOptions& options, Between&& between) {
  Decoded decoded;
  decoded.columns.resize(columns.size());
  std::vector<ColumnBuffers> buffers(columns.size());
  for (size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].nullable) decoded.columns[c].nulls.resize(offsets.size());
    buffers[c].nulls = decoded.columns[c].nulls;
    if (!columns[c].dense_numbers()) continue;
    decoded.columns[c].values.resize(offsets.size() * columns[c].count * columns[c].itemsize);
    buffers[c].values = decoded.columns[c].values;
  }
  const IndexedFile indexed{.bytes = file};
  const Records records{{&indexed, 1}, offsets};
  Decoder decoder(records, columns, options);
  decoded.fault = decoder.parse(buffers);
  if (decoded.fault) return decoded;
  decoded.descriptions = decoder.findings().descriptions;
  between();
  for (size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].dense_numbers()) continue;
    DecodedColumn& out = decoded.columns[c];
    allocate(buffer_sizes(columns[c], decoder.total(c), offsets.size()), out);
    buffers[c] = {out.values, out.outer, out.steps, out.strings, nullptr, out.nulls};
  }
  decoded.fault = decoder.copy(buffers);
  return decoded;
}

template <typename Between>
Decoded decode(Bytes file, std::span<const uint64_t> offsets, std::span<const Column> columns,
               bool verify, size_t threads, Between&& between) {
  return decode(file, offsets, columns, {.verify = verify, .threads = threads}, between);
}

inline Decoded decode(Bytes file, std::span<const uint64_t> offsets,
                      std::span<const Column> columns, size_t threads = 1) {
  return decode(file, offsets, columns, true, threads, [] {});
}

struct DecodedArrays {
  Fault fault;
  std::vector<int64_t> outer;
  std::vector<std::vector<uint8_t>> arrays;
  std::vector<uint8_t> nulls;  // of a nullable column, per row
};

// One ragged column padded to `width` items, in arrays of `rows` rows.
template <typename Between>
DecodedArrays decode_padded(Bytes file, std::span<const uint64_t> offsets, const Column& column,
                            size_t width, size_t rows, PadSides sides, Bytes fill,
                            Between&& between) {
  DecodedArrays decoded;
  ColumnBuffers buffers;
  if (column.nullable) decoded.nulls.resize(offsets.size());
  buffers.nulls = decoded.nulls;
  const IndexedFile indexed{.bytes = file};
  const Records records{{&indexed, 1}, offsets};
  Decoder decoder(records, {&column, 1}, {.threads = 2});
  decoded.fault = decoder.parse({&buffers, 1});
  if (decoded.fault) return decoded;
  between();
  for (size_t begin = 0; begin < offsets.size(); begin += rows) {
    const size_t count = std::min(rows, offsets.size() - begin);
    decoded.arrays.emplace_back(count * width * fill.size(), 0xee);
  }
  std::vector<PaddedArray> places;
  for (std::vector<uint8_t>& array : decoded.arrays) {
    places.push_back({array.data(), width * fill.size()});
  }
  decoded.outer.resize(offsets.size() + 1, -1);
  const PaddedRows padded{rows, places, fill, sides};
  buffers.outer = decoded.outer;
  buffers.padded = &padded;
  decoded.fault = decoder.copy({&buffers, 1});
  return decoded;
}

inline uint32_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kInt16:
    case Dtype::kUint16:
      return 2;
    case Dtype::kInt32:
    case Dtype::kUint32:
    case Dtype::kFloat32:
      return 4;
    case Dtype::kInt64:
    case Dtype::kUint64:
    case Dtype::kFloat64:
      return 8;
    default:
      return 1;
  }
}

inline Column column_of(std::string key, Dtype dtype, uint64_t count = 1, uint8_t ragged = 0) {
  Column column;
  column.key = std::move(key);
  column.dtype = dtype;
  column.itemsize = size_of(dtype);
  column.count = count;
  column.step = 1;
  column.ragged = ragged;
  return column;
}

template <typename T>
std::vector<T> numbers(const DecodedColumn& column) {
  std::vector<T> values(column.values.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), column.values.data(), column.values.size());
  return values;
}

inline std::vector<std::string> texts(const DecodedColumn& column) {
  std::vector<std::string> all;
  for (size_t i = 0; i + 1 < column.strings.size(); ++i) {
    all.emplace_back(column.values.begin() + column.strings[i],
                     column.values.begin() + column.strings[i + 1]);
  }
  return all;
}

}  // namespace recmap
