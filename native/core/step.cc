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

// The item to begin a search with: the one behind the last step, or the first.
StepEnd search_from(Bytes list, uint64_t first, const StepEnd& last) {
  // The file may have changed meanwhile, so the list may end before.
  const bool inside = last.at <= list.data() + list.size();
  if (last.list == list.data() && last.item <= first && inside) return last;
  return {list.data(), 0, list.data()};
}

// The items of a packed list.
bool take_packed(Kind kind, uint64_t first, uint64_t count, Cell& cell, StepEnd& last) {
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
  const StepEnd from = search_from(cell.bytes, first, last);
  const uint8_t* const end = cell.bytes.data() + cell.bytes.size();
  const uint8_t* const begin = skip_varints(from.at, end, first - from.item);
  const uint8_t* const stop = begin == nullptr ? nullptr : skip_varints(begin, end, count);
  if (stop == nullptr) {
    cell = Cell{};
    return true;
  }
  last = {cell.bytes.data(), first + count, stop};
  cell = Cell{Bytes(begin, stop), Cell::Form::kPacked, kind};
  return true;
}

// The one list of strings that a Feature message holds; false if it is made of other parts.
bool find_list(Bytes feature, Bytes& list) {
  Cursor fields(feature);
  uint32_t tag;
  return fields.tag(tag) &&
         tag == make_tag(static_cast<uint32_t>(Kind::kBytes), WireType::kBytes) &&
         fields.bytes(list) && fields.done();
}

// One string of a list. Strings behind it are not looked at: each may be on another page.
bool take_string(Bytes list, uint64_t number, Cell& cell, StepEnd& last) {
  StepEnd at = search_from(list, number, last);
  Cursor values(Bytes(at.at, list.data() + list.size()));
  while (!values.done()) {
    uint32_t tag;
    if (!values.tag(tag)) return false;
    if (tag != kTagPacked) {
      if (!values.skip(tag)) return false;
      continue;
    }
    Bytes string;
    if (!values.bytes(string)) return false;
    if (at.item++ == number) {
      last = {list.data(), at.item, values.position()};
      cell = Cell{string, Cell::Form::kPacked, Kind::kBytes};
      return true;
    }
  }
  cell = Cell{};
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

bool take_strings(uint64_t first, uint64_t count, Cell& cell, Scratch& scratch, StepEnd& last) {
  Bytes list;
  if (count == 1 && cell.form == Cell::Form::kFeature && find_list(cell.bytes, list)) {
    return take_string(list, first, cell, last);
  }
  uint64_t at = 0;
  std::vector<uint8_t> taken;
  const bool sound = visit_values(cell, [&](uint32_t, Bytes string) {
    if (at >= first && at - first < count) append_bytes(taken, string);
    ++at;
    return true;
  });
  if (!sound) return false;
  if (first > at || count > at - first) {
    cell = Cell{};
    return true;
  }
  // A Feature message with a list of these strings only.
  std::vector<uint8_t>& feature = scratch.emplace_back();
  append_bytes(feature, taken);
  cell = Cell{feature, Cell::Form::kFeature, Kind::kBytes};
  return true;
}

// Numbers in several parts, or unpacked ones. Their bytes end to end are a packed list.
bool take_scattered(uint64_t first, uint64_t count, Cell& cell, Scratch& scratch) {
  std::vector<uint8_t> packed;
  const bool sound = visit_values(cell, [&](uint32_t, Bytes values) {
    packed.insert(packed.end(), values.begin(), values.end());
    return true;
  });
  cell = Cell{packed, Cell::Form::kPacked, cell.kind};
  StepEnd none;
  if (!sound || !take_packed(cell.kind, first, count, cell, none)) return false;
  if (cell.form != Cell::Form::kMissing) {
    cell.bytes = scratch.emplace_back(cell.bytes.begin(), cell.bytes.end());
  }
  return true;
}

}  // namespace

bool take_step(const Column& column, uint64_t step, Cell& cell, Scratch& scratch, StepEnd& last) {
  if (cell.form == Cell::Form::kMissing) return true;
  if (cell.form == Cell::Form::kSteps) return false;
  const bool raw = cell.kind == Kind::kBytes && column.dtype != Dtype::kBytes;
  const uint64_t count = raw ? 1 : column.count;
  if (count != 0 && step > UINT64_MAX / count) {
    cell = Cell{};
    return true;
  }
  const uint64_t first = step * count;
  if (cell.kind == Kind::kBytes) return take_strings(first, count, cell, scratch, last);
  if (cell.form == Cell::Form::kFeature) return take_scattered(first, count, cell, scratch);
  return take_packed(cell.kind, first, count, cell, last);
}

}  // namespace recmap
