// Decoding packed varints of up to four bytes, four at a time.
#pragma once

#include "wire.h"

namespace recmap {

// How far varints have been decoded: where the next begins, and where its value goes.
struct GroupEnd {
  const uint8_t* at;
  uint8_t* out;
};

// Decodes varints to values of four or eight bytes (`size`) as long as four or more have room in
// [out, end), and stops before 64 bytes in which one is longer than four. May decode none, because
// this CPU may lack the instructions. Safe to call from any thread.
GroupEnd decode_groups(Bytes packed, uint8_t* out, const uint8_t* end, size_t size);

}  // namespace recmap
