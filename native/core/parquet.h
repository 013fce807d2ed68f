// What a Parquet file says of its size before any of it is decoded: the column chunks of the
// footer, the headers of pages, and the levels of lists. The values are left to pyarrow, which ends
// the process if a damaged footer does not fit together. Any bytes are safe here, and all functions
// are safe to call from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "format.h"

namespace recmap {

// A column of a row group. Sizes and places are not negative, but may be outside of the file.
struct ParquetChunk {
  int64_t group;           // the number of its row group
  int64_t type;            // the number of its physical type
  int64_t codec;           // the number of its compression, any number
  int64_t values;          // those of all lists, and nulls
  int64_t size;            // bytes of its pages once they are decompressed
  int64_t begin, end;      // where its pages are
  int64_t has_dictionary;  // 0 or 1
  int64_t text;            // bytes of its strings, without dictionaries; -1 if unknown
};

// Reads the column chunks of all row groups from a footer. Empty if the footer is malformed.
std::optional<std::vector<ParquetChunk>> read_parquet_chunks(Bytes footer);

enum class ParquetPageKind : int64_t { kData = 0, kDictionary = 2, kDataV2 = 3 };

struct ParquetPage {
  int64_t header;    // bytes of the header
  int64_t kind;      // a ParquetPageKind, or another number
  int64_t size;      // bytes once decompressed
  int64_t stored;    // bytes in the file, after the header
  int64_t values;    // 0 unless it is a page of data
  int64_t rows;      // those that begin in it; -1 if the header does not say
  int64_t encoding;  // the number of the encoding of its values
};

// Reads the header of a page. Empty if it is malformed, or longer than the bytes.
std::optional<ParquetPage> read_parquet_page(Bytes bytes);

// Counts the zeros among the first `count` levels of `bits` bits, 1 to 8. A row of lists begins
// where the level is 0. Returns -1 if there are fewer levels. They are a sequence of runs, each of
// which begins with a varint:
//
//   n << 1        the next byte, n times
//   n << 1 | 1    8 * n levels, lowest bits first
int64_t count_zero_levels(Bytes levels, int64_t count, int bits);

// Decompresses the beginning of a Snappy stream, until `out` is full, which must not overlap the
// stream. Returns the bytes that were made, fewer if the stream ends or is malformed.
size_t snappy_front(Bytes stream, std::span<uint8_t> out);

}  // namespace recmap
