// Copying rows of an array by number, and parts of rows from where they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire.h"

namespace recmap {

// Rows that begin `by` bytes later than others, and end as much later.
struct Shifted {
  size_t by = 0;
  std::span<uint8_t> to;  // may be empty
};

// Row i of `from` is the row_bytes at i * row_bytes. Writes rows[0], rows[1], ... to `to`, and the
// same rows, shifted, to `shifted`, on up to `threads` threads. Returns false and writes nothing if
// a row is not in `from` or the sizes do not fit. The spans must not overlap. Safe to call from any
// thread.
bool gather_rows(std::span<const uint8_t> from, size_t row_bytes, std::span<const int64_t> rows,
                 std::span<uint8_t> to, size_t threads, const Shifted& shifted = {});

// Rows of different lengths: row i is the items from offsets[i] to offsets[i + 1].
struct ChosenRows {
  std::span<const int64_t> offsets;
  std::span<const int64_t> rows;
};

// Whether all rows exist.
bool are_rows(const ChosenRows& chosen);

// Writes where rows that exist begin once they follow each other, and where the last one ends.
// Returns false if one ends before it begins, or together they have too many items.
bool gather_offsets(const ChosenRows& chosen, std::span<int64_t> to);

// Copies rows of items of `item` bytes to where they begin in `out`, on up to `threads` threads.
// Returns false if a row does not exist, or is outside of the values or the output.
bool gather_ragged(std::span<const uint8_t> values, const ChosenRows& chosen, size_t item,
                   std::span<const int64_t> to, std::span<uint8_t> out, size_t threads);

// An axis of a box: this many parts, so many bytes apart where they lie and where they go.
struct BoxAxis {
  size_t count, from_step, to_step;
};

// Whether a box keeps within so many bytes where it lies and where it goes.
bool box_fits(std::span<const BoxAxis> axes, size_t run, size_t from, size_t to);
void copy_box(uint8_t* to, const uint8_t* from, std::span<const BoxAxis> axes, size_t run);

// Boxes of one shape, such as the parts of rows that lie in a chunk of an array. The parts of a box
// along the last axis are `run` bytes that lie together.
struct Boxes {
  std::span<const Bytes> sources;
  std::span<const uint32_t> owners;  // the source of each box; empty if all lie in the first
  std::span<const int64_t> offsets;  // where each begins; one that is negative lies nowhere
  std::span<const BoxAxis> axes;     // outermost first
  size_t run;
};

// Writes box i to `to` at i * stride + at, on up to `threads` threads, and nothing for boxes that
// lie nowhere. Returns false and writes nothing if a box is not in its source or the sizes do not
// fit. Nothing may overlap. Safe to call from any thread.
bool gather_boxes(const Boxes& boxes, std::span<uint8_t> to, size_t stride, size_t at,
                  size_t threads);

// Asks the system for boxes of mapped files, if one of a few of them is not in memory. Returns
// whether it was asked.
bool prefetch_boxes(const Boxes& boxes);

}  // namespace recmap
