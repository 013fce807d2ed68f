// Packed varints of up to four bytes, four at a time.
#pragma once

#include "wire.h"

namespace recmap {

// How far varints have been taken, and to where they went.
struct Taken {
  const uint8_t* at;
  uint8_t* out;
};

// Takes varints as values of four or eight bytes (`size`) while four or more have
// room in [out, end), and stops before a stretch in which one is longer than four
// bytes. May take none: this CPU may not have the instructions.
Taken take_groups(Bytes packed, uint8_t* out, const uint8_t* end, size_t size);

}  // namespace recmap
