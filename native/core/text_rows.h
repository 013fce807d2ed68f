// The rows of text files: lines, or records of CSV, whose quoted fields may have line breaks.
//
// A row begins after an unquoted line break, unless the line is blank. Whether a byte is quoted
// follows from the number of quotes before it, because the quotes of RFC 4180 come in pairs: so a
// file is scanned in blocks, whose quotes are counted first. Quotes where none can be, which
// would invert what follows, are faults. All functions are safe to call from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "format.h"

namespace recmap {

// How rows are told apart. Without quotes (quote = 0), every line is a row.
struct RowSyntax {
  uint8_t quote = 0;
  uint8_t delimiter = 0;
};

// What is known at a place between two bytes.
struct RowState {
  bool quoted = false;
  // The byte before; a line break at the beginning of the file.
  uint8_t before = '\n';
};

enum class RowFault : uint8_t {
  kNone = 0,
  kQuote,   // a quote within an unquoted field, or text after a quoted one
  kReturn,  // a carriage return without a line feed
};

struct RowScan {
  uint64_t rows = 0;
  // The first row of each step of bytes, and where it begins.
  std::vector<uint64_t> anchor_rows, anchor_offsets;
  // At the end of the text.
  RowState state;
  RowFault fault = RowFault::kNone;
  uint64_t fault_offset = 0;
};

// Finds the rows that begin in a text. `next` is the byte after it, or -1 at the end of the file.
RowScan scan_rows(Bytes text, int next, RowState state, RowSyntax syntax, uint64_t step,
                  size_t threads);

// Finds the end of rows from the beginning of one: of at most `rows`, and of as many as have
// `most` bytes together, but at least one. Returns their number and their end.
struct RowWalk {
  uint64_t rows = 0;
  uint64_t end = 0;
};
RowWalk walk_rows(Bytes text, RowSyntax syntax, uint64_t rows, uint64_t most);

// Finds rows from the anchors before them, each of which begins at one of the `offsets`, so that
// `steps` rows are passed. Fills where each begins and ends.
void locate_rows(Bytes text, RowSyntax syntax, std::span<const uint64_t> offsets,
                 std::span<const uint64_t> steps, std::span<uint64_t> begins,
                 std::span<uint64_t> ends);

}  // namespace recmap
