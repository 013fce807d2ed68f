// Asking the system for rows of mapped files before they are read one by one, so that the disk
// works on many at once. Does nothing where the system cannot tell what is in memory. All
// functions are safe to call from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "records.h"

namespace recmap {

// Asks for rows of an array, row i being the row_bytes at i * row_bytes. Returns whether any had
// to be asked for: a few are tried first, because most often all rows are in memory, and asking
// costs more than reading. Rows outside the array are ignored.
bool prefetch_rows(Bytes array, size_t row_bytes, std::span<const int64_t> rows);

// The same for records, owners and rows being those of locate().
bool prefetch_records(std::span<const IndexedFile> files, std::span<const uint32_t> owners,
                      std::span<const int64_t> rows);

}  // namespace recmap
