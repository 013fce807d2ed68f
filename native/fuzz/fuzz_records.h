// One input as a few records and the columns wanted from them. Whatever the
// bytes are, the ways to read them must agree and stay inside their buffers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "decode_all.h"
#include "fuzz_input.h"
#include "inspect.h"
#include "pad.h"
#include "slots.h"
#include "wire_builder.h"

namespace recmap::fuzz {

using wire::Buffer;

inline Column make_column(char key, std::span<const Column::Place> places, Input& input) {
  const uint8_t type = input.byte();
  const uint8_t shape = input.byte();
  Column column = column_of(std::string(1, key), static_cast<Dtype>(type % 13));
  if (column.dtype == Dtype::kOpaque) column.itemsize = 3;
  column.place = places[type / 13 % places.size()];
  column.ragged = shape % 3;
  column.count = shape / 3 % 4;
  if (column.ragged != 0) column.count = std::max<uint64_t>(column.count, 1);
  column.step = shape / 12 % 2 == 0 ? 1 : std::max<uint64_t>(column.count, 1);
  column.has_fill = shape / 24 % 2 != 0;
  if (column.has_fill) column.fill.assign(column.count * column.itemsize, 0x5a);
  // What lies below a mask is the fill value.
  column.nullable = shape / 48 % 2 != 0 && (column.has_fill || column.ragged != 0);
  return column;
}

struct Patch {
  size_t at;
  uint8_t flip;

  void apply(std::span<uint8_t> bytes) const {
    if (!bytes.empty()) bytes[at % bytes.size()] ^= flip;
  }
};

inline std::vector<int64_t> lengths(const std::vector<int64_t>& offsets) {
  std::vector<int64_t> all;
  for (size_t i = 1; i < offsets.size(); ++i) all.push_back(offsets[i] - offsets[i - 1]);
  return all;
}

inline void require_ascending(const std::vector<int64_t>& offsets, uint64_t end) {
  REQUIRE(!offsets.empty() && offsets.front() == 0);
  REQUIRE(std::is_sorted(offsets.begin(), offsets.end()));
  REQUIRE(static_cast<uint64_t>(offsets.back()) == end);
}

// The offsets of a decoded column lead through exactly its values.
inline void require_sound(const Column& column, const DecodedColumn& out, size_t rows) {
  const bool strings = column.dtype == Dtype::kBytes;
  const uint64_t values = strings ? out.strings.size() - 1 : out.values.size() / column.itemsize;
  if (strings) require_ascending(out.strings, out.values.size());
  if (column.ragged == 0) {
    REQUIRE(values == rows * column.count);
    return;
  }
  REQUIRE(out.outer.size() == rows + 1 && values % column.count == 0);
  const uint64_t items = values / column.count;
  require_ascending(out.outer, column.ragged == 1 ? items : out.steps.size() - 1);
  if (column.ragged == 2) require_ascending(out.steps, items);
}

template <typename T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Below the mask of a single row lies the fill value, or nothing if the column is ragged.
inline void require_null_rows_blank(const Column& column, const DecodedColumn& row) {
  REQUIRE(row.nulls.size() == (column.nullable ? 1 : 0));
  if (row.nulls.empty() || row.nulls[0] == 0) return;
  REQUIRE(row.nulls[0] == 1);
  if (column.ragged != 0) {
    REQUIRE(row.outer.back() == 0);
  } else if (column.dense_numbers()) {
    REQUIRE(row.values == column.fill);
  }
}

// Rows that are read together, by a parser that sees one after another, equal rows that are read
// one by one.
inline void require_rows_alike(Bytes file, std::span<const uint64_t> offsets,
                               std::span<const Column> columns) {
  const Decoded together = decode(file, offsets, columns);
  const RecordCheck check = check_all(file, offsets, columns);
  REQUIRE(check.faults.empty() == !together.fault);
  std::vector<uint64_t> bad_rows;
  for (const Fault& fault : check.faults) bad_rows.push_back(fault.row);
  const auto is_bad = [&](uint64_t row) {
    return std::binary_search(bad_rows.begin(), bad_rows.end(), row);
  };
  if (together.fault) REQUIRE(is_bad(together.fault.row));

  std::vector<DecodedColumn> joined(columns.size());
  Descriptions descriptions;
  for (size_t row = 0; row < offsets.size(); ++row) {
    const Decoded alone = decode(file, offsets.subspan(row, 1), columns);
    REQUIRE(is_bad(row) == static_cast<bool>(alone.fault));
    for (const auto& [content, _] : alone.descriptions) descriptions.try_emplace(content, row);
    for (size_t c = 0; c < columns.size() && !alone.fault; ++c) {
      require_sound(columns[c], alone.columns[c], 1);
      append(joined[c].values, alone.columns[c].values);
      append(joined[c].outer, lengths(alone.columns[c].outer));
      append(joined[c].steps, lengths(alone.columns[c].steps));
      append(joined[c].strings, lengths(alone.columns[c].strings));
      append(joined[c].nulls, alone.columns[c].nulls);
      require_null_rows_blank(columns[c], alone.columns[c]);
    }
  }
  REQUIRE(together.fault ||
          (together.descriptions == descriptions && check.descriptions == descriptions));
  for (size_t c = 0; c < columns.size() && !together.fault; ++c) {
    require_sound(columns[c], together.columns[c], offsets.size());
    REQUIRE(together.columns[c].values == joined[c].values);
    REQUIRE(lengths(together.columns[c].outer) == joined[c].outer);
    REQUIRE(lengths(together.columns[c].steps) == joined[c].steps);
    REQUIRE(lengths(together.columns[c].strings) == joined[c].strings);
    REQUIRE(together.columns[c].nulls == joined[c].nulls);
  }
}

// Rows that are padded while they are read equal rows that are padded afterwards; and if `change`
// modifies the file in between, writes stay inside the arrays.
template <typename Change>
void require_padded_alike(Bytes file, std::span<const uint64_t> offsets, const Column& column,
                          uint8_t choice, Change&& change) {
  if (column.ragged != 1 || column.dtype == Dtype::kBytes) return;
  const size_t width = choice % 7;
  const PadSides sides{(choice & 64) != 0, (choice & 128) != 0};
  std::vector<uint8_t> fill(column.count * column.itemsize, 0x11);
  fill.back() = 0x22;
  const size_t rows = 1 + choice / 7 % 3;
  const DecodedArrays read = decode_padded(file, offsets, column, width, rows, sides, fill, [] {});
  const Decoded plain = decode(file, offsets, {&column, 1});
  REQUIRE(read.fault.code == plain.fault.code && read.fault.row == plain.fault.row);
  if (!plain.fault) {
    std::vector<uint8_t> expected(offsets.size() * width * fill.size());
    REQUIRE(pad_rows(plain.columns[0].values, plain.columns[0].outer, fill, sides, expected));
    std::vector<uint8_t> joined;
    for (const std::vector<uint8_t>& array : read.arrays) append(joined, array);
    REQUIRE(joined == expected);
    REQUIRE(read.outer == plain.columns[0].outer);
    REQUIRE(read.nulls == plain.columns[0].nulls);
  }
  decode_padded(file, offsets, column, width, rows, sides, fill, change);
}

// A column made from the facts of one record reads that record.
inline void require_facts_true(Bytes file, uint64_t offset) {
  const Facts facts = inspect(file, {&offset, 1}, true);
  if (facts.not_example) return;
  for (const auto& [key, feature] : facts.features) {
    std::vector<size_t> kinds;
    for (size_t kind = 1; kind < 4; ++kind) {
      if (feature.first_row[kind] == 0) kinds.push_back(kind);
    }
    if (feature.rows != 1 || kinds.size() != 1) continue;
    constexpr Dtype kDtypes[] = {Dtype::kBytes, Dtype::kBytes, Dtype::kFloat32, Dtype::kInt64};
    Column column = column_of(key.second, kDtypes[kinds[0]], 1, key.first ? 2 : 1);
    column.place = key.first ? Column::Place::kLists : Column::Place::kFeatures;
    const Decoded decoded = decode(file, {&offset, 1}, {&column, 1});
    if (decoded.fault) {
      // Facts count the values without looking at them.
      REQUIRE(decoded.fault.code == FaultCode::kMalformed && column.dtype == Dtype::kInt64);
      continue;
    }
    const auto outer = static_cast<uint64_t>(decoded.columns[0].outer.back());
    REQUIRE(outer == (key.first ? feature.steps.max : feature.values.max));
    for (const int64_t values : lengths(decoded.columns[0].steps)) {
      const auto found = static_cast<uint64_t>(values);
      REQUIRE(found >= feature.values.min && found <= feature.values.max);
    }
  }
}

inline void require_slots_true(Bytes file, uint64_t offset, std::span<const Column> columns) {
  const std::vector<Slot> slots = find_slots(file, offset, columns);
  if (slots.empty()) return;
  Bytes data;
  Fault ignored;
  REQUIRE(read_frame(file, offset, true, data, ignored));
  const uint64_t stride = data.size() + kFrameSize;
  for (const Slot& slot : slots) {
    if (slot.kind == Kind::kNone) continue;
    REQUIRE(slot.offset >= kHeaderSize && slot.offset + slot.size <= stride - kFooterSize);
  }
  const SlotCheck check = check_slots(file.subspan(offset), {1, stride}, columns, slots, {});
  REQUIRE(!check.fault);
  for (size_t c = 0; c < columns.size(); ++c) {
    REQUIRE(check.holds[c] == (slots[c].kind != Kind::kNone));
  }
}

// `places` are the maps that columns may read; the input chooses among them.
inline void fuzz_records(Bytes bytes, std::span<const Column::Place> places) {
  Input input(bytes);
  std::vector<Column> columns;
  for (const char key : {'a', 'b', 'c'}) columns.push_back(make_column(key, places, input));
  std::vector<Patch> patches(3);
  for (Patch& patch : patches) {
    patch.at = input.pair();
    patch.flip = input.byte();
  }

  // A record, its copy, and some that differ from it in one byte: the parser has to tell these
  // apart.
  const Buffer record(input.rest().begin(), input.rest().end());
  std::vector<Buffer> records = {record, record};
  for (const Patch& patch : patches) {
    records.push_back(record);
    patch.apply(records.back());
  }
  Buffer file = wire::framed(records);
  const std::vector<uint64_t> offsets = wire::offsets_of(records);

  require_rows_alike(file, offsets, columns);
  for (const uint64_t offset : offsets) {
    require_facts_true(file, offset);
    require_slots_true(file, offset, columns);
  }

  // The first record changes after it was measured, and is restored.
  const auto first = std::span(file).subspan(kHeaderSize, record.size());
  const auto change = [&] {
    for (const Patch& patch : patches) patch.apply(first);
  };
  for (const Column& column : columns) {
    require_padded_alike(file, offsets, column, patches[0].flip, change);
    std::copy(record.begin(), record.end(), first.begin());
  }
  const Decoded changed = decode(file, offsets, columns, true, 1, change);
  for (size_t c = 0; c < columns.size() && !changed.fault; ++c) {
    require_sound(columns[c], changed.columns[c], offsets.size());
  }
}

}  // namespace recmap::fuzz
