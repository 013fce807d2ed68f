#include "cell_values.h"

#include "varints.h"

namespace recmap {
namespace {

using Form = Cell::Form;

bool fail(Fault& fault, FaultCode code, uint64_t expected = 0, uint64_t found = 0) {
  // Conversions already name a fault more precise than "malformed".
  if (fault) return false;
  fault.code = code;
  fault.expected = static_cast<int64_t>(expected);
  fault.found = static_cast<int64_t>(found);
  return false;
}

bool takes_ints(Dtype dtype) { return dtype >= Dtype::kBool && dtype <= Dtype::kUint64; }
bool takes_floats(Dtype dtype) { return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat64; }

bool fits_kind(const Column& column, Kind kind, Fault& fault) {
  const bool fits = column.kind != Kind::kNone ? kind == column.kind
                    : kind == Kind::kFloat     ? takes_floats(column.dtype)
                    : kind == Kind::kInt64     ? takes_ints(column.dtype)
                                               : true;
  return fits || fail(fault, FaultCode::kWrongKind, 0, static_cast<uint64_t>(kind));
}

// Values in a cell that is a Feature, before the shape is considered.
bool count_values(const Column& column, const Cell& cell, uint64_t& values, uint64_t& bytes,
                  Fault& fault) {
  values = bytes = 0;
  if (cell.form == Form::kMissing) return true;
  if (!fits_kind(column, cell.kind, fault)) return false;
  bool sound = true;
  const bool walked = visit_chunks(cell, [&](uint32_t tag, Bytes chunk) {
    bytes += chunk.size();
    if (tag != kTagPacked || cell.kind == Kind::kBytes) {
      values += 1;
    } else if (cell.kind == Kind::kFloat) {
      sound &= chunk.size() % 4 == 0;
      values += chunk.size() / 4;
    } else {
      sound &= chunk.empty() || chunk.back() < 0x80;
      values += count_varints(chunk);
    }
    return true;
  });
  if (!walked || !sound) return fail(fault, FaultCode::kMalformed);
  if (cell.kind == Kind::kBytes && column.dtype != Dtype::kBytes) {
    if (values > 1) return fail(fault, FaultCode::kNotOneString, 1, values);
    if (bytes % column.itemsize != 0) {
      const bool fixed = column.ragged == 0;
      return fail(fault, fixed ? FaultCode::kWrongSize : FaultCode::kNotMultiple,
                  fixed ? column.count * column.itemsize : column.itemsize, bytes);
    }
    values = bytes / column.itemsize;
  }
  return true;
}

bool wrong_count(const Column& column, const Cell& cell, uint64_t expected, uint64_t found,
                 Fault& fault) {
  if (cell.kind == Kind::kBytes && column.dtype != Dtype::kBytes) {
    return fail(fault, FaultCode::kWrongSize, expected * column.itemsize, found * column.itemsize);
  }
  return fail(fault, FaultCode::kWrongCount, expected, found);
}

bool measure_steps(const Column& column, const Cell& cell, CellSize& tally, Fault& fault) {
  const bool walked = visit_steps(cell, [&](const Cell& step) {
    uint64_t values;
    uint64_t bytes;
    if (!count_values(column, step, values, bytes, fault)) return false;
    tally.steps += 1;
    tally.bytes += bytes;
    if (column.ragged == 2) {
      if (values % column.count != 0) {
        return fail(fault, FaultCode::kNotMultiple, column.count, values);
      }
      tally.items += values / column.count;
      return true;
    }
    const uint64_t wanted = column.ragged == 1 ? column.count : column.step;
    if (values != wanted) {
      return wrong_count(column, step, wanted, values, fault);
    }
    tally.items += column.ragged == 1 ? 1 : values;
    return true;
  });
  if (!walked) return fail(fault, FaultCode::kMalformed);
  if (column.ragged == 0 && tally.items != column.count) {
    return fail(fault, FaultCode::kWrongCount, column.count, tally.items);
  }
  return true;
}

// A dense row that may take its fill value does so where nothing is stored.
bool uses_fill(const Column& column, const Cell& cell) {
  if (column.ragged != 0) return false;
  if (cell.form == Form::kMissing) return true;
  if (!column.has_fill || cell.form == Form::kSteps) return false;
  uint64_t values;
  uint64_t bytes;
  Fault ignored;
  return count_values(column, cell, values, bytes, ignored) && values == 0 && column.count != 0;
}

template <typename T>
bool copy_ints(Bytes packed, CellOutput& room, Fault& fault) {
  VarintReader<T> reader(packed, room.at, room.end);
  const FaultCode code = reader.read();
  room.at = reader.out();
  return code == FaultCode::kNone || fail(fault, code, 0, static_cast<uint64_t>(reader.refused()));
}

bool copy_ints(Dtype dtype, Bytes packed, CellOutput& room, Fault& fault) {
  switch (dtype) {
    case Dtype::kBool:
      return copy_ints<bool>(packed, room, fault);
    case Dtype::kInt8:
      return copy_ints<int8_t>(packed, room, fault);
    case Dtype::kInt16:
      return copy_ints<int16_t>(packed, room, fault);
    case Dtype::kInt32:
      return copy_ints<int32_t>(packed, room, fault);
    case Dtype::kInt64:
      return copy_ints<int64_t>(packed, room, fault);
    case Dtype::kUint8:
      return copy_ints<uint8_t>(packed, room, fault);
    case Dtype::kUint16:
      return copy_ints<uint16_t>(packed, room, fault);
    case Dtype::kUint32:
      return copy_ints<uint32_t>(packed, room, fault);
    case Dtype::kUint64:
      return copy_ints<uint64_t>(packed, room, fault);
    default:
      return fail(fault, FaultCode::kWrongKind, 0, static_cast<uint64_t>(Kind::kInt64));
  }
}

bool copy_bytes(Bytes bytes, CellOutput& room, Fault& fault) {
  if (static_cast<size_t>(room.end - room.at) < bytes.size()) {
    return fail(fault, FaultCode::kChanged);
  }
  if (!bytes.empty()) std::memcpy(room.at, bytes.data(), bytes.size());
  room.at += bytes.size();
  return true;
}

bool copy_floats(Dtype dtype, Bytes packed, CellOutput& room, Fault& fault) {
  if (packed.size() % 4 != 0) return fail(fault, FaultCode::kMalformed);
  if (dtype == Dtype::kFloat32) return copy_bytes(packed, room, fault);
  if (static_cast<size_t>(room.end - room.at) / 2 < packed.size()) {
    return fail(fault, FaultCode::kChanged);
  }
  for (size_t i = 0; i < packed.size(); i += 4) {
    store_le(room.at, static_cast<double>(load_le<float>(packed.data() + i)));
    room.at += 8;
  }
  return true;
}

bool copy_string(Bytes string, CellOutput& room, Fault& fault) {
  if (room.strings == room.strings_end) return fail(fault, FaultCode::kChanged);
  if (!copy_bytes(string, room, fault)) return false;
  *room.strings++ = room.at - room.base;
  return true;
}

// The values of a cell that is a Feature.
bool copy_feature(const Column& column, const Cell& cell, CellOutput& room, Fault& fault) {
  if (cell.form == Form::kMissing) return true;
  if (!fits_kind(column, cell.kind, fault)) return false;
  const bool copied = visit_chunks(cell, [&](uint32_t, Bytes chunk) {
    if (column.dtype == Dtype::kBytes) return copy_string(chunk, room, fault);
    if (cell.kind == Kind::kBytes) return copy_bytes(chunk, room, fault);
    if (cell.kind == Kind::kFloat) return copy_floats(column.dtype, chunk, room, fault);
    return copy_ints(column.dtype, chunk, room, fault);
  });
  return copied || fail(fault, FaultCode::kMalformed);
}

bool copy_fill(const Column& column, CellOutput& room, Fault& fault) {
  if (!column.has_fill) return fail(fault, FaultCode::kMissing);
  const Bytes fill(column.fill);
  if (column.dtype != Dtype::kBytes) return copy_bytes(fill, room, fault);
  for (uint64_t i = 0; i < column.count; ++i) {
    if (!copy_string(fill, room, fault)) return false;
  }
  return true;
}

}  // namespace

bool measure(const Column& column, const Cell& cell, CellSize& tally, Fault& fault) {
  tally = CellSize{};
  if (uses_fill(column, cell)) {
    if (!column.has_fill) return fail(fault, FaultCode::kMissing);
    tally.items = column.count;
    tally.bytes = column.fill.size() * column.count;
    return true;
  }
  if (cell.form == Form::kMissing) return true;
  if (cell.form == Form::kSteps) return measure_steps(column, cell, tally, fault);
  if (column.ragged == 2) return fail(fault, FaultCode::kFlatNotNested);
  uint64_t values;
  if (!count_values(column, cell, values, tally.bytes, fault)) return false;
  if (column.ragged == 0) {
    tally.items = values;
    return values == column.count || wrong_count(column, cell, column.count, values, fault);
  }
  if (values % column.count != 0) {
    return fail(fault, FaultCode::kNotMultiple, column.count, values);
  }
  tally.steps = tally.items = values / column.count;
  return true;
}

bool copy_cell(const Column& column, const Cell& cell, CellOutput& room, Fault& fault) {
  if (uses_fill(column, cell)) return copy_fill(column, room, fault);
  if (cell.form != Form::kSteps) return copy_feature(column, cell, room, fault);
  const uint64_t item_size = column.count * column.itemsize;
  uint8_t* const begin = room.at;
  const int64_t* const first_string = room.strings;
  const bool copied = visit_steps(cell, [&](const Cell& step) {
    if (!copy_feature(column, step, room, fault)) return false;
    if (column.ragged != 2) return true;
    if (room.steps == room.steps_end) return fail(fault, FaultCode::kChanged);
    const auto items = column.dtype == Dtype::kBytes
                           ? static_cast<uint64_t>(room.strings - first_string) / column.count
                           : static_cast<uint64_t>(room.at - begin) / item_size;
    *room.steps++ = room.first_item + static_cast<int64_t>(items);
    return true;
  });
  return copied || fail(fault, FaultCode::kMalformed);
}

}  // namespace recmap
