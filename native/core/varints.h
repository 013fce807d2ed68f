// Decoding varints that lie end to end, as in a packed int64_list. Up to 64 bytes are decoded at
// once: first a mask of the bytes in which varints end, then the values, so that no load has to
// wait until the varint before it has been decoded.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "fault.h"
#include "varint_groups.h"
#include "wire.h"

namespace recmap {

inline constexpr uint64_t kTopBits = 0x8080808080808080u;

// Every varint ends in the one byte whose top bit is clear.
inline uint64_t count_varints(Bytes packed) {
  uint64_t count = 0;
  size_t i = 0;
  // Sixteen sums of bytes side by side, over so few bytes that they cannot overflow: compilers
  // vectorise this.
  while (packed.size() - i >= 64) {
    const size_t rows = std::min<size_t>((packed.size() - i) / 16, 255);
    uint8_t sums[16] = {};
    for (size_t row = 0; row < rows; ++row, i += 16) {
      for (size_t lane = 0; lane < 16; ++lane) {
        const auto inverted = static_cast<uint8_t>(~packed[i + lane]);
        sums[lane] = static_cast<uint8_t>(sums[lane] + (inverted >> 7));
      }
    }
    for (const uint8_t sum : sums) count += sum;
  }
  for (; packed.size() - i >= 8; i += 8) {
    const uint64_t ends = (~load_le<uint64_t>(packed.data() + i) & kTopBits) >> 7;
    count += ends * 0x0101010101010101u >> 56;  // the sum of the bytes
  }
  for (; i < packed.size(); ++i) count += packed[i] < 0x80;
  return count;
}

// A bit for each of `words` words of bytes, set where a varint ends.
inline uint64_t varint_ends(const uint8_t* at, size_t words) {
  uint64_t ends = 0;
  for (size_t i = 0; i < words; ++i) {
    const uint64_t clear = (~load_le<uint64_t>(at + 8 * i) & kTopBits) >> 7;
    ends |= (clear * 0x0102040810204080u >> 56) << 8 * i;  // one bit of each byte
  }
  return ends;
}

// Pulls the seven-bit groups of two varints of up to four bytes, each in its half
// of a word, together.
inline uint64_t join_halves(uint64_t x) {
  x &= ~kTopBits;
  x = (x & 0x007f007f007f007fu) | (x & 0x7f007f007f007f00u) >> 1;
  return (x & 0x00003fff00003fffu) | (x & 0x3fff00003fff0000u) >> 2;
}

// The same for one varint of up to eight bytes.
inline uint64_t join_word(uint64_t x) {
  x = join_halves(x);
  return (x & 0x000000000fffffffu) | (x & 0x0fffffff00000000u) >> 4;
}

template <typename T>
bool holds(int64_t value) {
  if constexpr (std::same_as<T, bool>) {
    return value == 0 || value == 1;
  } else if constexpr (std::same_as<T, uint64_t>) {
    return value >= 0;
  } else {
    return value >= static_cast<int64_t>(std::numeric_limits<T>::min()) &&
           value <= static_cast<int64_t>(std::numeric_limits<T>::max());
  }
}

// Writes varints to [out, end) as values of type T. What it refers to must outlive it.
template <typename T>
class VarintReader {
 public:
  VarintReader(Bytes packed, uint8_t* out, const uint8_t* end)
      : at_(packed.data()), stop_(at_ + packed.size()), out_(out), end_(end) {}

  // kMalformed; kChanged if there is no room; kOutOfRange if T cannot hold a value.
  FaultCode read() {
    FaultCode code = FaultCode::kNone;
    while (at_ != stop_ && code == FaultCode::kNone) {
      if (read_groups()) continue;
      // One word more than the mask covers, because values are loaded by the word.
      const size_t words = std::min<size_t>(static_cast<size_t>(stop_ - at_) / 8, 9);
      const uint64_t ends = words < 2 ? 0 : varint_ends(at_, words - 1);
      code = ends == 0 ? read_one() : read_masked(ends);
    }
    return code;
  }

  // The end of the values that were written.
  uint8_t* out() const { return out_; }
  // The value that was out of range.
  int64_t refused() const { return refused_; }

 private:
  // Reads some by groups of four; false if none could be read like this.
  bool read_groups() {
    if constexpr (sizeof(T) < 4) return false;
    if (masks_left_ > 0) {
      --masks_left_;
      return false;
    }
    const GroupEnd reached =
        decode_groups(Bytes(at_, static_cast<size_t>(stop_ - at_)), out_, end_, sizeof(T));
    if (reached.at == at_) {
      masks_left_ = kMasksBetween;
      return false;
    }
    at_ = reached.at;
    out_ = reached.out;
    return true;
  }

  // Reads all varints that end at these bits.
  FaultCode read_masked(uint64_t ends) {
    const auto count = static_cast<size_t>(std::popcount(ends));
    if (static_cast<size_t>(end_ - out_) / sizeof(T) < count) return FaultCode::kChanged;
    const uint64_t inner = ~ends & (std::bit_floor(ends) - 1);
    if ((inner & inner >> 1 & inner >> 2 & inner >> 3) == 0) {
      uint8_t* const out = out_;
      if (read_short(ends)) return FaultCode::kNone;
      out_ = out;  // read again, to see which one is out of range
    }
    return read_any(ends);
  }

  // Reads varints of up to four bytes, two at a time; false if one is out of range.
  bool read_short(uint64_t ends) {
    const uint8_t* at = at_;
    uint8_t* out = out_;
    bool sound = true;
    const auto take = [&]() -> uint64_t {
      const uint8_t* const next = at_ + std::countr_zero(ends) + 1;
      ends &= ends - 1;
      const uint32_t bytes = load_le<uint32_t>(at) & UINT32_MAX >> (32 - 8 * (next - at));
      at = next;
      return bytes;
    };
    const auto put = [&](uint64_t value) {
      const auto number = static_cast<int64_t>(value);
      if constexpr (sizeof(T) < 4) sound &= holds<T>(number);
      store_le(out, static_cast<T>(number));
      out += sizeof(T);
    };
    while ((ends & (ends - 1)) != 0) {
      const uint64_t first = take();
      const uint64_t both = join_halves(first | take() << 32);
      put(both & UINT32_MAX);
      put(both >> 32);
    }
    if (ends != 0) put(join_halves(take()));
    if (sound) at_ = at;
    out_ = out;
    return sound;
  }

  // Reads varints of any length that end at these bits.
  FaultCode read_any(uint64_t ends) {
    const uint8_t* const begin = at_;
    while ((ends = read_words(begin, ends)) != 0) {
      const uint8_t* const next = begin + std::countr_zero(ends) + 1;
      const FaultCode code = read_one();
      if (code != FaultCode::kNone) return code;
      if (at_ != next) return FaultCode::kChanged;
      ends &= ends - 1;
    }
    return FaultCode::kNone;
  }

  // Reads varints up to one that is longer than eight bytes or out of range, for which there is
  // room. Returns the bits of that one and of those behind it.
  uint64_t read_words(const uint8_t* begin, uint64_t ends) {
    // Not the members, which a compiler may load and store for each value.
    const uint8_t* at = at_;
    uint8_t* out = out_;
    for (; ends != 0; ends &= ends - 1) {
      const uint8_t* const next = begin + std::countr_zero(ends) + 1;
      if (next - at > 8) break;
      const uint64_t bytes = load_le<uint64_t>(at) & UINT64_MAX >> (64 - 8 * (next - at));
      const auto value = static_cast<int64_t>(join_word(bytes));
      if (!holds<T>(value)) break;
      store_le(out, static_cast<T>(value));
      out += sizeof(T);
      at = next;
    }
    at_ = at;
    out_ = out;
    return ends;
  }

  FaultCode read_one() {
    Cursor cursor(Bytes(at_, stop_));
    uint64_t value;
    if (!cursor.varint(value)) return FaultCode::kMalformed;
    at_ = cursor.position();
    return put(static_cast<int64_t>(value));
  }

  FaultCode put(int64_t value) {
    if (static_cast<size_t>(end_ - out_) < sizeof(T)) return FaultCode::kChanged;
    if (!holds<T>(value)) {
      refused_ = value;
      return FaultCode::kOutOfRange;
    }
    store_le(out_, static_cast<T>(value));
    out_ += sizeof(T);
    return FaultCode::kNone;
  }

  // Long varints rarely come alone, so this many masks are read before groups are tried again.
  static constexpr int kMasksBetween = 8;

  int masks_left_ = 0;
  const uint8_t* at_;
  const uint8_t* const stop_;
  uint8_t* out_;
  const uint8_t* const end_;
  int64_t refused_ = 0;
};

}  // namespace recmap
