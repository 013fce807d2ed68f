// Text: strings that are UTF-8. All functions are safe to call from any thread.
#pragma once

#include <cstdint>
#include <span>

#include "format.h"

namespace recmap {

// Whether a string is UTF-8, as strict as protobuf and Python: no surrogates, nothing above
// U+10FFFF, no character in more bytes than it needs.
bool is_utf8(Bytes text);

// Returns the first row that is not UTF-8 by itself; -1 if all are, -2 if the offsets do not fit
// the values.
int64_t first_invalid_utf8(Bytes values, std::span<const int64_t> offsets);

}  // namespace recmap
