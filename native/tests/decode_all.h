// Both phases of a decode in one call, into buffers of exactly the measured
// sizes, so that a sanitizer sees a byte too many.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "column.h"
#include "decode.h"

namespace recmap {

struct DecodedColumn {
  std::vector<uint8_t> values;
  std::vector<int64_t> outer;
  std::vector<int64_t> steps;
  std::vector<int64_t> strings;
};

struct Decoded {
  Fault fault;
  std::vector<DecodedColumn> columns;
  Descriptions descriptions;
};

inline void allocate(const Column& column, const CellSize& total, size_t rows, DecodedColumn& out) {
  const bool strings = column.dtype == Dtype::kBytes;
  const uint64_t values = column.ragged == 0 ? total.items : total.items * column.count;
  out.values.resize(strings ? total.bytes : values * column.itemsize);
  if (column.ragged >= 1) out.outer.resize(rows + 1, -1);
  if (column.ragged == 2) out.steps.resize(total.steps + 1, -1);
  if (strings) out.strings.resize(values + 1, -1);
}

// `between` runs after the first phase.
template <typename Between>
Decoded decode(Bytes file, std::span<const uint64_t> offsets, std::span<const Column> columns,
               bool verify, size_t threads, Between&& between) {
  Decoded decoded;
  decoded.columns.resize(columns.size());
  std::vector<ColumnBuffers> buffers(columns.size());
  for (size_t c = 0; c < columns.size(); ++c) {
    if (!columns[c].dense_numbers()) continue;
    decoded.columns[c].values.resize(offsets.size() * columns[c].count * columns[c].itemsize);
    buffers[c].values = decoded.columns[c].values;
  }
  const Records records{{{&file, 1}}, offsets};
  Decode work(records, columns, verify, threads);
  decoded.fault = work.first(buffers);
  if (decoded.fault) return decoded;
  decoded.descriptions = work.descriptions();
  between();
  for (size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].dense_numbers()) continue;
    DecodedColumn& out = decoded.columns[c];
    allocate(columns[c], work.totals()[c], offsets.size(), out);
    buffers[c] = {out.values, out.outer, out.steps, out.strings};
  }
  decoded.fault = work.second(buffers);
  return decoded;
}

inline Decoded decode(Bytes file, std::span<const uint64_t> offsets,
                      std::span<const Column> columns, size_t threads = 1) {
  return decode(file, offsets, columns, true, threads, [] {});
}

struct DecodedArrays {
  Fault fault;
  std::vector<int64_t> outer;
  std::vector<std::vector<uint8_t>> arrays;
};

// One ragged column padded to `width` items, in arrays of `rows` rows.
template <typename Between>
DecodedArrays decode_padded(Bytes file, std::span<const uint64_t> offsets, const Column& column,
                            size_t width, size_t rows, PadSides sides, Bytes fill,
                            Between&& between) {
  DecodedArrays decoded;
  ColumnBuffers buffers;
  const Records records{{{&file, 1}}, offsets};
  Decode work(records, {&column, 1}, true, 2);
  decoded.fault = work.first({&buffers, 1});
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
  decoded.fault = work.second({&buffers, 1});
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
