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

}  // namespace recmap
