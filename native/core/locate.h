// Finding the records of indexed files by number. Reads stay inside the files, whatever their
// bytes say. All functions are safe to call from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fault.h"
#include "records.h"

namespace recmap {

// Writes the offset of each row to `offsets`. Row i is a number in the file with the number
// owners[i], or in the first if there are no owners. From an anchor, records are walked to; those
// that lie behind one another are walked once. Returns the first fault, whose `row` is a position
// in `rows`: kChanged if no anchor leads to a row.
Fault locate(std::span<const IndexedFile> files, std::span<const uint32_t> owners,
             std::span<const int64_t> rows, std::span<uint64_t> offsets, size_t threads = 1);

// The bytes in which a row lies: its own if the file has a stride, otherwise those from the
// anchor before it to the next. Empty if the file has no such row.
Bytes locate_span(const IndexedFile& file, uint64_t row);

// Numbers rows that are counted through several files within the file of each. `starts` has the
// number of the first row of each file and ends with the number of all rows. Returns false if a
// row is in no file. The spans have one entry for each row. Safe to call from any thread.
bool divide_among_files(std::span<const int64_t> starts, std::span<const int64_t> rows,
                        std::span<int64_t> numbers, std::span<uint32_t> owners, size_t threads);

}  // namespace recmap
