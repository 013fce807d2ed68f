// Both phases of an encode in one call, and columns made from plain vectors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "encode.h"

namespace recmap {

struct Encoded {
  Fault fault;
  std::vector<uint8_t> file;
  std::vector<uint64_t> offsets;  // of the records

  std::vector<uint8_t> record(size_t i) const {
    const uint64_t end = i + 1 < offsets.size() ? offsets[i + 1] : file.size();
    return {file.data() + offsets[i] + kHeaderSize, file.data() + end - kFooterSize};
  }
};

inline Encoded encode(std::span<const EncodeColumn> columns, uint64_t rows, uint64_t align = 0,
                      size_t threads = 2, Bytes lead = {}) {
  Encoded encoded;
  Encoder encoder(columns, rows, align, threads, lead);
  encoded.fault = encoder.measure();
  if (encoded.fault) return encoded;
  encoded.file.resize(encoder.offsets().back());
  encoded.offsets.assign(encoder.offsets().begin(), encoder.offsets().end() - 1);
  encoded.fault = encoder.write(encoded.file.data());
  return encoded;
}

// Columns point into `values` and the offsets, which must outlive them.
template <typename T>
EncodeColumn encode_dense(std::string key, Kind kind, Dtype dtype, const std::vector<T>& values,
                          uint64_t count = 1) {
  EncodeColumn column;
  column.key = std::move(key);
  column.kind = kind;
  column.dtype = dtype;
  column.itemsize = sizeof(T);
  column.count = count;
  column.values = reinterpret_cast<const uint8_t*>(values.data());
  column.row_stride = static_cast<int64_t>(count * sizeof(T));
  return column;
}

template <typename T>
EncodeColumn encode_ragged(std::string key, Kind kind, Dtype dtype, const std::vector<T>& values,
                           const std::vector<int64_t>& outer) {
  EncodeColumn column = encode_dense(std::move(key), kind, dtype, values);
  column.ragged = 1;
  column.outer = outer;
  return column;
}

inline EncodeColumn encode_strings(std::string key, const std::vector<uint8_t>& text,
                                   const std::vector<int64_t>& strings, uint64_t count = 1) {
  EncodeColumn column = encode_dense(std::move(key), Kind::kBytes, Dtype::kBytes, text, count);
  column.strings = strings;
  return column;
}

}  // namespace recmap
