#include "text_rows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "parallel.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace recmap {
namespace {

constexpr size_t kLane = 64;
// Small enough for the cache, where the second pass finds it.
constexpr size_t kBlock = size_t{1} << 18;

// The bytes of a lane that are equal to one, as bits.
uint64_t equal_bits(const uint8_t* lane, uint8_t byte) {
#if defined(__SSE2__)
  const __m128i wanted = _mm_set1_epi8(static_cast<char>(byte));
  uint64_t bits = 0;
  for (int i = 0; i < 4; ++i) {
    const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lane) + i);
    const auto mask = static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(part, wanted)));
    bits |= static_cast<uint64_t>(mask) << (16 * i);
  }
  return bits;
#elif defined(__aarch64__)
  const uint8x16_t places = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const uint8x16_t wanted = vdupq_n_u8(byte);
  uint8x16_t parts[4];
  for (int i = 0; i < 4; ++i) {
    parts[i] = vandq_u8(vceqq_u8(vld1q_u8(lane + 16 * i), wanted), places);
  }
  const uint8x16_t halves = vpaddq_u8(vpaddq_u8(parts[0], parts[1]), vpaddq_u8(parts[2], parts[3]));
  return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(halves, halves)), 0);
#else
  uint64_t bits = 0;
  for (size_t i = 0; i < kLane; ++i) bits |= static_cast<uint64_t>(lane[i] == byte) << i;
  return bits;
#endif
}

// Bit i is the parity of bits 0 to i.
uint64_t prefix_parity(uint64_t bits) {
  for (int by = 1; by < 64; by *= 2) bits ^= bits << by;
  return bits;
}

struct LaneRows {
  uint64_t starts;
  RowFault fault;
  unsigned fault_at;
};

// Finds the rows of one lane after another.
class LaneScanner {
 public:
  LaneScanner(RowSyntax syntax, RowState state)
      : syntax_(syntax), quoted_(state.quoted ? ~uint64_t{0} : 0), before_(state.before) {}

  // `count` bytes of the lane are text; the others are 0. `next` is the byte after them, or -1.
  LaneRows scan(const uint8_t* lane, size_t count, int next) {
    const uint64_t text = count == kLane ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    const uint64_t breaks = equal_bits(lane, '\n') & text;
    const uint64_t returns = equal_bits(lane, '\r') & text;
    const uint64_t quotes = syntax_.quote != 0 ? equal_bits(lane, syntax_.quote) & text : 0;
    // An opening quote is inside, a closing one is not.
    uint64_t inside = quoted_;
    if (quotes != 0) inside ^= prefix_parity(quotes);
    LaneRows found{0, RowFault::kNone, kLane};
    const uint64_t free_breaks = breaks & ~inside, free_returns = returns & ~inside;
    const bool begun = before_ == '\n' && quoted_ == 0;
    found.starts = ((free_breaks << 1) | (begun ? 1 : 0)) & text & ~free_breaks & ~free_returns;
    if ((free_returns | quotes) != 0) check(lane, count, next, free_returns, quotes, inside, found);
    if (quotes != 0) quoted_ = (inside >> (count - 1)) & 1 ? ~uint64_t{0} : 0;
    before_ = lane[count - 1];
    return found;
  }

  RowState state() const { return {quoted_ != 0, before_}; }

 private:
  void check(const uint8_t* lane, size_t count, int next, uint64_t returns, uint64_t quotes,
             uint64_t inside, LaneRows& found) const {
    const auto after = [&](unsigned i) { return i + 1 < count ? int{lane[i + 1]} : next; };
    const auto fail = [&](unsigned i, RowFault fault) {
      if (i < found.fault_at) found.fault_at = i, found.fault = fault;
    };
    for (uint64_t left = returns; left != 0; left &= left - 1) {
      const auto i = static_cast<unsigned>(std::countr_zero(left));
      if (after(i) != '\n') fail(i, RowFault::kReturn);
    }
    for (uint64_t left = quotes; left != 0; left &= left - 1) {
      const auto i = static_cast<unsigned>(std::countr_zero(left));
      const bool opens = (inside >> i) & 1;
      const int beside = opens ? (i == 0 ? int{before_} : int{lane[i - 1]}) : after(i);
      const bool fits = beside == syntax_.delimiter || beside == '\n' || beside == syntax_.quote ||
                        (!opens && (beside == '\r' || beside == -1));
      if (!fits) fail(i, RowFault::kQuote);
    }
  }

  RowSyntax syntax_;
  uint64_t quoted_;
  uint8_t before_;
};

// Calls visit(offset, lane) for the lanes of a text until it returns false.
template <typename Visit>
void each_lane(Bytes text, int next, LaneScanner& scanner, Visit&& visit) {
  size_t at = 0;
  for (; at + kLane < text.size(); at += kLane) {
    if (!visit(at, scanner.scan(text.data() + at, kLane, text[at + kLane]))) return;
  }
  if (at == text.size()) return;
  uint8_t last[kLane] = {};
  std::memcpy(last, text.data() + at, text.size() - at);
  visit(at, scanner.scan(last, text.size() - at, next));
}

bool odd_quotes(Bytes text, uint8_t quote) {
  return std::count(text.begin(), text.end(), quote) % 2 != 0;
}

RowScan scan_block(Bytes text, int next, RowState state, RowSyntax syntax, uint64_t step,
                   uint64_t base) {
  RowScan found;
  LaneScanner scanner(syntax, state);
  uint64_t anchored = 0;  // the next anchor is the first row from here
  each_lane(text, next, scanner, [&](size_t at, const LaneRows& lane) {
    uint64_t starts = lane.starts;
    if (lane.fault != RowFault::kNone) {
      found.fault = lane.fault;
      found.fault_offset = base + at + lane.fault_at;
      // Rows that begin after the fault are none; the one with the fault is.
      const unsigned kept = lane.fault_at + 1;
      if (kept < kLane) starts &= (uint64_t{1} << kept) - 1;
    }
    if (starts != 0 && at + kLane > anchored) {
      for (uint64_t left = starts; left != 0; left &= left - 1) {
        const auto i = static_cast<unsigned>(std::countr_zero(left));
        if (at + i < anchored) continue;
        const uint64_t before = starts & ((uint64_t{1} << i) - 1);
        found.anchor_rows.push_back(found.rows + static_cast<uint64_t>(std::popcount(before)));
        found.anchor_offsets.push_back(base + at + i);
        anchored = (at + i) / step * step + step;
      }
    }
    found.rows += static_cast<uint64_t>(std::popcount(starts));
    return found.fault == RowFault::kNone;
  });
  found.state = scanner.state();
  return found;
}

}  // namespace

RowScan scan_rows(Bytes text, int next, RowState state, RowSyntax syntax, uint64_t step,
                  size_t threads) {
  step = std::max<uint64_t>(step, 1);
  const uint64_t size = std::max<uint64_t>((kBlock + step - 1) / step * step, step);
  const size_t blocks = text.size() / size + (text.size() % size != 0);
  const auto block = [&](size_t i) {
    return text.subspan(i * size, std::min<size_t>(size, text.size() - i * size));
  };
  std::vector<uint8_t> odd(blocks, 0);
  if (syntax.quote != 0 && threads > 1) {
    each_block(blocks, 1, threads, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) odd[i] = odd_quotes(block(i), syntax.quote);
    });
  }
  std::vector<RowState> states(blocks + 1, state);
  for (size_t i = 0; i < blocks; ++i) {
    states[i + 1] = {states[i].quoted != (odd[i] != 0), block(i).back()};
  }
  std::vector<RowScan> scans(blocks);
  const auto scan_one = [&](size_t i) {
    const int after = i + 1 < blocks ? int{block(i + 1).front()} : next;
    scans[i] = scan_block(block(i), after, states[i], syntax, step, i * size);
  };
  if (threads > 1) {
    each_block(blocks, 1, threads, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) scan_one(i);
    });
  } else {
    for (size_t i = 0; i < blocks; ++i) {
      scan_one(i);
      states[i + 1] = scans[i].state;
      if (scans[i].fault != RowFault::kNone) break;
    }
  }
  RowScan all;
  all.state = state;
  for (RowScan& each : scans) {
    for (uint64_t row : each.anchor_rows) all.anchor_rows.push_back(all.rows + row);
    std::copy(each.anchor_offsets.begin(), each.anchor_offsets.end(),
              std::back_inserter(all.anchor_offsets));
    all.rows += each.rows;
    all.state = each.state;
    all.fault = each.fault;
    all.fault_offset = each.fault_offset;
    if (each.fault != RowFault::kNone) break;
  }
  return all;
}

RowWalk walk_rows(Bytes text, RowSyntax syntax, uint64_t rows, uint64_t most) {
  RowWalk walk{0, text.size()};
  LaneScanner scanner(syntax, {});
  uint64_t begun = 0, last = 0;  // rows that began, and where the last of them did
  bool ended = false;
  if (rows == 0 || text.empty()) return {0, 0};
  each_lane(text, '\n', scanner, [&](size_t at, const LaneRows& lane) {
    for (uint64_t left = lane.starts; left != 0; left &= left - 1) {
      const uint64_t here = at + static_cast<uint64_t>(std::countr_zero(left));
      // The row before ends here.
      if (begun == rows || (begun != 0 && here > most)) {
        ended = true;
        const bool fits = here <= most || begun == 1;
        walk = fits ? RowWalk{begun, here} : RowWalk{begun - 1, last};
        return false;
      }
      ++begun, last = here;
    }
    return true;
  });
  if (ended) return walk;
  if (begun > 1 && text.size() > most) return {begun - 1, last};
  return {begun, text.size()};
}

void locate_rows(Bytes text, RowSyntax syntax, std::span<const uint64_t> offsets,
                 std::span<const uint64_t> steps, std::span<uint64_t> begins,
                 std::span<uint64_t> ends) {
  for (size_t i = 0; i < offsets.size(); ++i) {
    const uint64_t offset = std::min<uint64_t>(offsets[i], text.size());
    uint64_t passed = 0;
    bool begun = false;
    begins[i] = ends[i] = text.size();
    LaneScanner scanner(syntax, {});
    each_lane(text.subspan(offset), '\n', scanner, [&](size_t at, const LaneRows& lane) {
      for (uint64_t left = lane.starts; left != 0; left &= left - 1) {
        const uint64_t here = offset + at + static_cast<uint64_t>(std::countr_zero(left));
        if (begun) {
          ends[i] = here;
          return false;
        }
        if (passed++ == steps[i]) begins[i] = here, begun = true;
      }
      return true;
    });
  }
}

}  // namespace recmap
