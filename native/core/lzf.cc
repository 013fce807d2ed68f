#include "lzf.h"

#include <cstring>

namespace recmap {
namespace {

constexpr size_t kWord = 16;
constexpr size_t kMostLiterals = 32;

// Bytes from less than a word before overlap the copy, so they are copied one by one.
void repeat(uint8_t* to, size_t distance, size_t n, size_t room) {
  const uint8_t* const from = to - distance;
  if (distance >= kWord && room >= n + kWord) {
    for (size_t i = 0; i < n; i += kWord) std::memcpy(to + i, from + i, kWord);
  } else if (distance == 1) {
    std::memset(to, *from, n);
  } else {
    for (size_t i = 0; i < n; ++i) to[i] = from[i];
  }
}

}  // namespace

LzfResult lzf_expand(Bytes stream, std::span<uint8_t> out) {
  const uint8_t* at = stream.data();
  const uint8_t* const end = at + stream.size();
  uint8_t* to = out.data();
  const auto left = [&] { return static_cast<size_t>(end - at); };
  const auto made = [&] { return static_cast<size_t>(to - out.data()); };
  const auto room = [&] { return out.size() - made(); };
  while (at != end) {
    const size_t control = *at++;
    if (control < kMostLiterals) {
      const size_t n = control + 1;
      if (n > left()) return {LzfFault::kCut, made()};
      if (n > room()) return {LzfFault::kTooLong, made()};
      // A copy of a fixed size takes a few instructions, any other takes a call.
      if (left() >= kMostLiterals && room() >= kMostLiterals) {
        std::memcpy(to, at, kMostLiterals);
      } else {
        std::memcpy(to, at, n);
      }
      at += n;
      to += n;
      continue;
    }
    size_t n = control >> 5;
    if (left() < (n == 7 ? 2u : 1u)) return {LzfFault::kCut, made()};
    if (n == 7) n += *at++;
    n += 2;
    const size_t distance = ((control & 0x1f) << 8 | *at++) + 1;
    if (distance > made()) return {LzfFault::kBeforeStart, made()};
    if (n > room()) return {LzfFault::kTooLong, made()};
    repeat(to, distance, n, room());
    to += n;
  }
  return {room() == 0 ? LzfFault::kNone : LzfFault::kTooShort, made()};
}

}  // namespace recmap
