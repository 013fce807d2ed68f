#include "step.h"

#include <bit>
#include <vector>

namespace recmap {
namespace {

// Returns where the varints after the next `count` begin; null if there are fewer.
const uint8_t* skip_varints(const uint8_t* at, const uint8_t* end, uint64_t count) {
  constexpr uint64_t kLastBytes = 0x8080808080808080u;
  while (end - at >= 8) {
    // The last byte of a varint has no high bit.
    const auto last = static_cast<uint64_t>(std::popcount(~load_le<uint64_t>(at) & kLastBytes));
    if (last >= count) break;
    count -= last;
    at += 8;
  }
  for (; count != 0 && at != end; ++at) count -= *at < 0x80;
  return count == 0 ? at : nullptr;
}

// The items of a packed list.
bool take_packed(Kind kind, uint64_t first, uint64_t count, Cell& cell) {
  const uint8_t* const end = cell.bytes.data() + cell.bytes.size();
  if (kind == Kind::kFloat) {
    if (cell.bytes.size() % 4 != 0) return false;
    const uint64_t there = cell.bytes.size() / 4;
    if (first > there || count > there - first) {
      cell = Cell{};
    } else {
      cell.bytes = cell.bytes.subspan(first * 4, count * 4);
    }
    return true;
  }
  const uint8_t* const begin = skip_varints(cell.bytes.data(), end, first);
  const uint8_t* const stop = begin == nullptr ? nullptr : skip_varints(begin, end, count);
  cell = stop == nullptr ? Cell{} : Cell{Bytes(begin, stop), Cell::Form::kPacked, kind};
  return true;
}

void append_varint(std::vector<uint8_t>& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<uint8_t>(value | 0x80));
  out.push_back(static_cast<uint8_t>(value));
}

void append_bytes(std::vector<uint8_t>& out, Bytes bytes) {
  out.push_back(make_tag(1, WireType::kBytes));
  append_varint(out, bytes.size());
  out.insert(out.end(), bytes.begin(), bytes.end());
}

bool take_strings(uint64_t first, uint64_t count, Cell& cell, Scratch& scratch) {
  uint64_t at = 0;
  Bytes one;
  std::vector<uint8_t> several;
  // Strings behind the step are not looked at: each may be on another page.
  const auto found = [&] { return at >= first && at - first == count; };
  const bool visited = visit_values(cell, [&](uint32_t, Bytes string) {
    if (at >= first) {
      one = string;
      if (count != 1) append_bytes(several, string);
    }
    ++at;
    return !found();
  });
  if (!found()) {
    if (!visited) return false;
    cell = Cell{};
  } else if (count == 1) {
    cell = Cell{one, Cell::Form::kPacked, Kind::kBytes};
  } else {
    // A Feature message with a list of these strings only.
    std::vector<uint8_t>& feature = scratch.emplace_back();
    append_bytes(feature, several);
    cell = Cell{feature, Cell::Form::kFeature, Kind::kBytes};
  }
  return true;
}

}  // namespace

bool take_step(const Column& column, uint64_t step, Cell& cell, Scratch& scratch) {
  if (cell.form == Cell::Form::kMissing) return true;
  if (cell.form == Cell::Form::kSteps) return false;
  const bool raw = cell.kind == Kind::kBytes && column.dtype != Dtype::kBytes;
  const uint64_t count = raw ? 1 : column.count;
  if (count != 0 && step > UINT64_MAX / count) {
    cell = Cell{};
    return true;
  }
  if (cell.kind == Kind::kBytes) return take_strings(step * count, count, cell, scratch);
  if (cell.form == Cell::Form::kFeature) {
    // Numbers in several parts, or unpacked ones. Their bytes end to end are a packed list.
    std::vector<uint8_t>& packed = scratch.emplace_back();
    const bool sound = visit_values(cell, [&](uint32_t, Bytes values) {
      packed.insert(packed.end(), values.begin(), values.end());
      return true;
    });
    if (!sound) return false;
    cell = Cell{packed, Cell::Form::kPacked, cell.kind};
  }
  return take_packed(cell.kind, step * count, count, cell);
}

}  // namespace recmap
