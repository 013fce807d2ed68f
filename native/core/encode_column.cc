#include "encode_column.h"

#include "ragged_offsets.h"

namespace recmap {
namespace {

// The values of one Feature: `n` numbers from `values`, or the strings
// [first, first + n).
struct Run {
  const uint8_t* values = nullptr;
  uint64_t first = 0;
  uint64_t n = 0;
};

template <typename T, typename Each>
bool each_int(const uint8_t* values, uint64_t n, Each&& each) {
  for (uint64_t i = 0; i < n; ++i) {
    const T value = load_le<T>(values + i * sizeof(T));
    if (!each(static_cast<uint64_t>(static_cast<int64_t>(value)))) return false;
  }
  return true;
}

// Calls each(value as an int64's bits) for every number of the run.
template <typename Each>
bool each_int(const EncodeColumn& column, const Run& run, Each&& each) {
  switch (column.dtype) {
    case Dtype::kInt8:
      return each_int<int8_t>(run.values, run.n, each);
    case Dtype::kInt16:
      return each_int<int16_t>(run.values, run.n, each);
    case Dtype::kInt32:
      return each_int<int32_t>(run.values, run.n, each);
    case Dtype::kBool:  // one byte, 0 or 1
    case Dtype::kUint8:
      return each_int<uint8_t>(run.values, run.n, each);
    case Dtype::kUint16:
      return each_int<uint16_t>(run.values, run.n, each);
    case Dtype::kUint32:
      return each_int<uint32_t>(run.values, run.n, each);
    default:
      return each_int<int64_t>(run.values, run.n, each);
  }
}

// Calls visit(run) for each step of the row if the column is a feature list, else once for all
// its values.
template <typename Visit>
bool each_run(const EncodeColumn& column, uint64_t row, Visit&& visit) {
  const auto run_of = [&](uint64_t first_item, uint64_t items) {
    Run run;
    run.n = items * column.count;
    run.first = first_item * column.count;
    run.values = column.values + run.first * column.itemsize;
    return run;
  };
  if (column.ragged == 0) {
    Run run;
    run.values = column.values + static_cast<int64_t>(row) * column.row_stride;
    run.first = row * column.count;
    run.n = column.count;
    if (!column.in_lists) return visit(run);
    for (uint64_t done = 0; done < column.count; done += column.step) {
      if (!visit(Run{run.values + done * column.itemsize, run.first + done, column.step})) {
        return false;
      }
    }
    return true;
  }
  const auto begin = static_cast<uint64_t>(column.outer[row]);
  const auto end = static_cast<uint64_t>(column.outer[row + 1]);
  if (!column.in_lists) return visit(run_of(begin, end - begin));
  for (uint64_t i = begin; i < end; ++i) {
    if (column.ragged == 1) {
      if (!visit(run_of(i, 1))) return false;
      continue;
    }
    const auto first = static_cast<uint64_t>(column.steps[i]);
    if (!visit(run_of(first, static_cast<uint64_t>(column.steps[i + 1]) - first))) return false;
  }
  return true;
}

uint64_t string_size(const EncodeColumn& column, uint64_t i) {
  return static_cast<uint64_t>(column.strings[i + 1] - column.strings[i]);
}

// Size of the packed numbers, or of all fields of a list of strings.
bool payload_size(const EncodeColumn& column, const Run& run, uint64_t& size, Fault& fault) {
  size = 0;
  if (column.kind == Kind::kFloat || column.raw()) {
    size = run.n * column.itemsize;
    return true;
  }
  if (column.kind == Kind::kBytes) {
    for (uint64_t i = 0; i < run.n; ++i) size += field_size(string_size(column, run.first + i));
    return true;
  }
  const bool is_unsigned64 = column.dtype == Dtype::kUint64;
  return each_int(column, run, [&](uint64_t value) {
    if (is_unsigned64 && value >> 63 != 0) {
      fault.code = FaultCode::kOutOfRange;
      fault.found = static_cast<int64_t>(value);
      return false;
    }
    size += varint_size(value);
    return true;
  });
}

void write_run(RecordWriter& out, const EncodeColumn& column, const Run& run) {
  if (column.kind == Kind::kFloat || column.raw()) {
    out.bytes(run.values, run.n * column.itemsize);
  } else if (column.kind == Kind::kBytes) {
    for (uint64_t i = run.first; i < run.first + run.n; ++i) {
      const uint64_t size = string_size(column, i);
      out.field(kTagPacked, size);
      out.bytes(column.values + column.strings[i], size);
    }
  } else {
    each_int(column, run, [&](uint64_t value) {
      out.varint(value);
      return true;
    });
  }
}

}  // namespace

bool EncodeColumn::is_dense() const {
  return ragged == 0 && dtype != Dtype::kBytes && (!in_lists || (step != 0 && count % step == 0));
}

bool EncodeColumn::offsets_fit(uint64_t rows, uint64_t bytes) const {
  const bool text = dtype == Dtype::kBytes;
  const bool possible = ragged <= 2 && count != 0 && (ragged != 2 || in_lists) &&
                        (!text || kind == Kind::kBytes) && (text || ragged != 0) &&
                        (!in_lists || (step != 0 && count % step == 0));
  if (!possible || (ragged != 0 && outer.size() != rows + 1) || (ragged == 2 && steps.empty()) ||
      (text && strings.empty())) {
    return false;
  }
  if (text && !offsets_are_sound(strings, bytes)) return false;
  const uint64_t items = (text ? strings.size() - 1 : bytes / itemsize) / count;
  if (ragged == 0) return items == rows;
  if (ragged == 1) return offsets_are_sound(outer, items);
  return offsets_are_sound(steps, items) && offsets_are_sound(outer, steps.size() - 1);
}

uint64_t value_count(const EncodeColumn& column, uint64_t rows) {
  if (column.ragged == 0) return rows * column.count;
  auto first = static_cast<size_t>(column.outer[0]), last = static_cast<size_t>(column.outer[rows]);
  if (column.ragged == 2) {
    first = static_cast<size_t>(column.steps[first]);
    last = static_cast<size_t>(column.steps[last]);
  }
  return (last - first) * column.count;
}

bool measure_values(const EncodeColumn& column, uint64_t row, uint64_t& size, Fault& fault) {
  size = 0;
  return each_run(column, row, [&](const Run& run) {
    uint64_t payload;
    if (!payload_size(column, run, payload, fault)) return false;
    size += column.in_lists ? field_size(field_size(list_size(column, payload))) : payload;
    return true;
  });
}

void write_payload(RecordWriter& out, const EncodeColumn& column, uint64_t row) {
  each_run(column, row, [&](const Run& run) {
    write_run(out, column, run);
    return true;
  });
}

void write_steps(RecordWriter& out, const EncodeColumn& column, uint64_t row) {
  each_run(column, row, [&](const Run& run) {
    uint64_t payload;
    Fault unused;  // the values were checked when they were measured
    payload_size(column, run, payload, unused);
    out.field(kTagStep, field_size(list_size(column, payload)));
    write_feature_head(out, column, payload);
    write_run(out, column, run);
    return true;
  });
}

}  // namespace recmap
