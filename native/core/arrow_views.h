// Strings of Arrow's view layout: 16 bytes each, which hold a short string or say where a long one
// lies.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "format.h"

namespace recmap {

inline constexpr size_t kArrowViewSize = 16;

// Writes where each string would begin and end if all lay end to end; `offsets` has one entry more
// than there are views. Strings whose entry in `nulls` is not 0 are empty; `nulls` may be empty.
// Returns the first view that is damaged or refers to bytes outside of `buffers`, if any.
std::optional<size_t> measure_views(Bytes views, std::span<const Bytes> buffers, Bytes nulls,
                                    std::span<int64_t> offsets);

// Copies the strings end to end to `values`, after measure_views() found them all sound.
void copy_views(Bytes views, std::span<const Bytes> buffers, std::span<const int64_t> offsets,
                std::span<uint8_t> values);

}  // namespace recmap
