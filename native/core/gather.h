// Copying rows of an array by number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace recmap {

// Row i of `from` is the row_bytes at i * row_bytes. Writes rows[0], rows[1], ... to `to`, on up to
// `threads` threads. Returns false and writes nothing if a row is not in `from` or the sizes do not
// fit. The spans must not overlap. Safe to call from any thread.
bool gather_rows(std::span<const uint8_t> from, size_t row_bytes, std::span<const int64_t> rows,
                 std::span<uint8_t> to, size_t threads);

}  // namespace recmap
