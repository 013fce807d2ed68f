#include "cell_values.h"

#include "utf8.h"
#include "varints.h"

namespace recmap {
namespace {

using Form = Cell::Form;

bool fail(Fault& fault, FaultCode code, uint64_t expected = 0, uint64_t found = 0) {
  // A conversion may have named a more precise fault than "malformed".
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

// Counts the values of a Feature, whatever the shape of the column.
bool count_values(const Column& column, const Cell& cell, uint64_t& values, uint64_t& bytes,
                  Fault& fault) {
  values = bytes = 0;
  if (cell.form == Form::kMissing) return true;
  if (!fits_kind(column, cell.kind, fault)) return false;
  bool sound = true;
  const bool visited = visit_values(cell, [&](uint32_t tag, Bytes field) {
    bytes += field.size();
    if (tag != kTagPacked || cell.kind == Kind::kBytes) {
      values += 1;
    } else if (cell.kind == Kind::kFloat) {
      sound &= field.size() % 4 == 0;
      values += field.size() / 4;
    } else {
      sound &= field.empty() || field.back() < 0x80;
      values += count_varints(field);
    }
    return true;
  });
  if (!visited || !sound) return fail(fault, FaultCode::kMalformed);
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

bool measure_steps(const Column& column, const Cell& cell, CellSize& size, Fault& fault) {
  const bool visited = visit_steps(cell, [&](const Cell& step) {
    uint64_t values;
    uint64_t bytes;
    if (!count_values(column, step, values, bytes, fault)) return false;
    size.steps += 1;
    size.bytes += bytes;
    if (column.ragged == 2) {
      if (values % column.count != 0) {
        return fail(fault, FaultCode::kNotMultiple, column.count, values);
      }
      size.items += values / column.count;
      return true;
    }
    const uint64_t wanted = column.ragged == 1 ? column.count : column.step;
    if (values != wanted) {
      return wrong_count(column, step, wanted, values, fault);
    }
    size.items += column.ragged == 1 ? 1 : values;
    return true;
  });
  if (!visited) return fail(fault, FaultCode::kMalformed);
  if (column.ragged == 0 && size.items != column.count) {
    return fail(fault, FaultCode::kWrongCount, column.count, size.items);
  }
  return true;
}

// A dense row takes its fill value where nothing is stored.
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
bool copy_ints(Bytes packed, CellOutput& output, Fault& fault) {
  VarintReader<T> reader(packed, output.at, output.end);
  const FaultCode code = reader.read();
  output.at = reader.out();
  return code == FaultCode::kNone || fail(fault, code, 0, static_cast<uint64_t>(reader.refused()));
}

bool copy_ints(Dtype dtype, Bytes packed, CellOutput& output, Fault& fault) {
  switch (dtype) {
    case Dtype::kBool:
      return copy_ints<bool>(packed, output, fault);
    case Dtype::kInt8:
      return copy_ints<int8_t>(packed, output, fault);
    case Dtype::kInt16:
      return copy_ints<int16_t>(packed, output, fault);
    case Dtype::kInt32:
      return copy_ints<int32_t>(packed, output, fault);
    case Dtype::kInt64:
      return copy_ints<int64_t>(packed, output, fault);
    case Dtype::kUint8:
      return copy_ints<uint8_t>(packed, output, fault);
    case Dtype::kUint16:
      return copy_ints<uint16_t>(packed, output, fault);
    case Dtype::kUint32:
      return copy_ints<uint32_t>(packed, output, fault);
    case Dtype::kUint64:
      return copy_ints<uint64_t>(packed, output, fault);
    default:
      return fail(fault, FaultCode::kWrongKind, 0, static_cast<uint64_t>(Kind::kInt64));
  }
}

bool copy_bytes(Bytes bytes, CellOutput& output, Fault& fault) {
  if (static_cast<size_t>(output.end - output.at) < bytes.size()) {
    return fail(fault, FaultCode::kChanged);
  }
  if (!bytes.empty()) std::memcpy(output.at, bytes.data(), bytes.size());
  output.at += bytes.size();
  return true;
}

bool copy_floats(Dtype dtype, Bytes packed, CellOutput& output, Fault& fault) {
  if (packed.size() % 4 != 0) return fail(fault, FaultCode::kMalformed);
  if (dtype == Dtype::kFloat32) return copy_bytes(packed, output, fault);
  if (static_cast<size_t>(output.end - output.at) / 2 < packed.size()) {
    return fail(fault, FaultCode::kChanged);
  }
  for (size_t i = 0; i < packed.size(); i += 4) {
    store_le(output.at, static_cast<double>(load_le<float>(packed.data() + i)));
    output.at += 8;
  }
  return true;
}

bool copy_string(const Column& column, Bytes string, CellOutput& output, Fault& fault) {
  if (output.strings == output.strings_end) return fail(fault, FaultCode::kChanged);
  if (!copy_bytes(string, output, fault)) return false;
  // The copy is checked, because the file may change meanwhile.
  if (column.text && !is_utf8({output.at - string.size(), string.size()})) {
    return fail(fault, FaultCode::kNotUtf8);
  }
  *output.strings++ = output.at - output.base;
  return true;
}

// The values of a Feature.
bool copy_feature(const Column& column, const Cell& cell, CellOutput& output, Fault& fault) {
  if (cell.form == Form::kMissing) return true;
  if (!fits_kind(column, cell.kind, fault)) return false;
  const bool copied = visit_values(cell, [&](uint32_t, Bytes field) {
    if (column.dtype == Dtype::kBytes) return copy_string(column, field, output, fault);
    if (cell.kind == Kind::kBytes) return copy_bytes(field, output, fault);
    if (cell.kind == Kind::kFloat) return copy_floats(column.dtype, field, output, fault);
    return copy_ints(column.dtype, field, output, fault);
  });
  return copied || fail(fault, FaultCode::kMalformed);
}

// The values of a feature list, step by step.
bool copy_steps(const Column& column, const Cell& cell, CellOutput& output, Fault& fault) {
  const uint64_t item_size = column.count * column.itemsize;
  uint8_t* const begin = output.at;
  const int64_t* const first_string = output.strings;
  const bool copied = visit_steps(cell, [&](const Cell& step) {
    if (!copy_feature(column, step, output, fault)) return false;
    if (column.ragged != 2) return true;
    if (output.steps == output.steps_end) return fail(fault, FaultCode::kChanged);
    const auto items = column.dtype == Dtype::kBytes
                           ? static_cast<uint64_t>(output.strings - first_string) / column.count
                           : static_cast<uint64_t>(output.at - begin) / item_size;
    *output.steps++ = output.first_item + static_cast<int64_t>(items);
    return true;
  });
  return copied || fail(fault, FaultCode::kMalformed);
}

// The fill value of a dense row.
bool copy_fill(const Column& column, CellOutput& output, Fault& fault) {
  if (!column.has_fill) return fail(fault, FaultCode::kMissing);
  const Bytes fill(column.fill);
  if (column.dtype != Dtype::kBytes) return copy_bytes(fill, output, fault);
  for (uint64_t i = 0; i < column.count; ++i) {
    if (!copy_string(column, fill, output, fault)) return false;
  }
  return true;
}

}  // namespace

bool is_null(const Column& column, const Cell& cell) {
  if (cell.form == Form::kPacked && !cell.bytes.empty()) return false;
  return cell.form == Form::kMissing || uses_fill(column, cell);
}

bool measure_cell(const Column& column, const Cell& cell, CellSize& size, Fault& fault) {
  size = CellSize{};
  if (uses_fill(column, cell)) {
    if (!column.has_fill) return fail(fault, FaultCode::kMissing);
    size.items = column.count;
    size.bytes = column.fill.size() * column.count;
    return true;
  }
  if (cell.form == Form::kMissing) return true;
  if (cell.form == Form::kSteps) return measure_steps(column, cell, size, fault);
  if (column.ragged == 2) return fail(fault, FaultCode::kFlatNotNested);
  uint64_t values;
  if (!count_values(column, cell, values, size.bytes, fault)) return false;
  if (column.ragged == 0) {
    size.items = values;
    return values == column.count || wrong_count(column, cell, column.count, values, fault);
  }
  if (values % column.count != 0) {
    return fail(fault, FaultCode::kNotMultiple, column.count, values);
  }
  size.steps = size.items = values / column.count;
  return true;
}

bool copy_cell(const Column& column, const Cell& cell, CellOutput output, Fault& fault) {
  const bool copied = uses_fill(column, cell)     ? copy_fill(column, output, fault)
                      : cell.form == Form::kSteps ? copy_steps(column, cell, output, fault)
                                                  : copy_feature(column, cell, output, fault);
  return copied && (output.full() || fail(fault, FaultCode::kChanged));
}

}  // namespace recmap
