#include "encode.h"

#include <algorithm>
#include <mutex>

#include "frame.h"
#include "parallel.h"
#include "record_writer.h"

namespace recmap {
namespace {

constexpr size_t kBlockRows = 1024;
constexpr size_t kBlockBytes = size_t{1} << 18;
constexpr double kBlockValues = 4096;

// A length-delimited field: one byte of tag, the length, the bytes.
uint64_t field_size(uint64_t size) { return 1 + varint_size(size) + size; }

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

// Calls step(run) for the row's steps if the column is a feature list, else
// once for all its values.
template <typename Step>
bool each_run(const EncodeColumn& column, uint64_t row, Step&& step) {
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
    if (!column.in_lists) return step(run);
    for (uint64_t done = 0; done < column.count; done += column.step) {
      if (!step(Run{run.values + done * column.itemsize, run.first + done, column.step})) {
        return false;
      }
    }
    return true;
  }
  const auto begin = static_cast<uint64_t>(column.outer[row]);
  const auto end = static_cast<uint64_t>(column.outer[row + 1]);
  if (!column.in_lists) return step(run_of(begin, end - begin));
  for (uint64_t i = begin; i < end; ++i) {
    if (column.ragged == 1) {
      if (!step(run_of(i, 1))) return false;
      continue;
    }
    const auto first = static_cast<uint64_t>(column.steps[i]);
    if (!step(run_of(first, static_cast<uint64_t>(column.steps[i + 1]) - first))) return false;
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

// Size of a FloatList, Int64List or BytesList.
uint64_t list_size(const EncodeColumn& column, uint64_t payload) {
  if (column.kind == Kind::kBytes && !column.raw()) return payload;
  // protobuf leaves out an empty packed field, but an empty string is a value.
  return payload == 0 && !column.raw() ? 0 : field_size(payload);
}

uint64_t entry_size(const EncodeColumn& column, uint64_t value) {
  return field_size(column.key.size()) + field_size(value);
}

void put_key(RecordWriter& out, const EncodeColumn& column, uint64_t value) {
  out.field(kTagEntry, entry_size(column, value));
  out.field(kTagKey, column.key.size());
  out.bytes(column.key.data(), column.key.size());
  out.field(kTagValue, value);
}

// The tags and lengths of a Feature, down to its payload.
void put_feature_head(RecordWriter& out, const EncodeColumn& column, uint64_t payload) {
  const uint64_t list = list_size(column, payload);
  out.field(make_tag(static_cast<uint32_t>(column.kind), WireType::kBytes), list);
  if (list != payload) out.field(kTagPacked, payload);
}

void put_payload(RecordWriter& out, const EncodeColumn& column, const Run& run) {
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

void put_lists(RecordWriter& out, const EncodeColumn& column, uint64_t row) {
  each_run(column, row, [&](const Run& run) {
    uint64_t payload;
    Fault unused;  // the values were checked when they were measured
    payload_size(column, run, payload, unused);
    out.field(kTagStep, field_size(list_size(column, payload)));
    put_feature_head(out, column, payload);
    put_payload(out, column, run);
    return true;
  });
}

// The largest payload a column without ragged axes can have.
uint64_t largest_payload(const EncodeColumn& column) {
  return column.kind == Kind::kInt64 ? column.count * 10 : column.count * column.itemsize;
}

// Values of a column of some rows, strings counted as one each.
uint64_t value_count(const EncodeColumn& column, uint64_t rows) {
  if (column.ragged == 0) return rows * column.count;
  auto first = static_cast<size_t>(column.outer[0]), last = static_cast<size_t>(column.outer[rows]);
  if (column.ragged == 2) {
    first = static_cast<size_t>(column.steps[first]);
    last = static_cast<size_t>(column.steps[last]);
  }
  return (last - first) * column.count;
}

}  // namespace

Encode::Encode(std::span<const EncodeColumn> columns, uint64_t rows, uint64_t align, size_t threads,
               Bytes lead)
    : columns_(columns),
      rows_(rows),
      align_(align),
      threads_(threads),
      lead_(lead),
      fixed_size_(align != 0 || std::all_of(columns.begin(), columns.end(),
                                            [](const EncodeColumn& c) { return c.fixed_size(); })),
      entries_(columns.size()) {
  plan_prefixes();
  if (align_ != 0) plan_aligned();
}

void Encode::plan_prefixes() {
  for (size_t c = 0; c < columns_.size(); ++c) {
    const EncodeColumn& column = columns_[c];
    if (!column.fixed_size()) continue;
    const uint64_t payload = column.count * column.itemsize;
    std::vector<uint8_t>& prefix = entries_[c].prefix;
    prefix.resize(column.key.size() + 64);
    RecordWriter out(prefix.data(), prefix.size());
    put_key(out, column, field_size(list_size(column, payload)));
    put_feature_head(out, column, payload);
    prefix.resize(out.position());
  }
}

void Encode::plan_aligned() {
  uint64_t at = 0;
  bool may_be_short = false;  // the entry before takes its largest size or less
  const auto gap_to = [&](uint64_t after) {
    // Padding has an overhead, so a gap is 0 or at least that.
    uint64_t gap = may_be_short ? kPaddingOverhead : 0;
    gap += (align_ - (kHeaderSize + at + gap + after) % align_) % align_;
    while (gap != 0 && gap < kPaddingOverhead) gap += align_;
    return gap;
  };
  for (size_t c = 0; c < columns_.size(); ++c) {
    const EncodeColumn& column = columns_[c];
    const uint64_t payload = largest_payload(column);
    if (column.fixed_size()) {
      const uint64_t entry = entries_[c].prefix.size() + payload;
      at += gap_to(field_size(entry) - payload);
      entries_[c].begin = at;
      at += field_size(entry);
      may_be_short = false;
    } else {
      if (may_be_short) at += kPaddingOverhead;
      entries_[c].begin = at;
      at += field_size(field_size(entry_size(column, field_size(list_size(column, payload)))));
      may_be_short = true;
    }
  }
  data_size_ = at + gap_to(kFooterSize);
}

bool Encode::measure_row(uint64_t row, uint64_t& size, Fault& fault) {
  uint64_t maps[2] = {0, 0};
  bool present[2] = {false, false};
  for (size_t c = 0; c < columns_.size(); ++c) {
    const EncodeColumn& column = columns_[c];
    present[column.in_lists] = true;
    if (column.fixed_size()) {
      maps[0] += entries_[c].prefix.size() + column.count * column.itemsize;
      continue;
    }
    uint64_t value = 0;
    const bool sound = each_run(column, row, [&](const Run& run) {
      uint64_t payload;
      if (!payload_size(column, run, payload, fault)) return false;
      const uint64_t feature = field_size(list_size(column, payload));
      value += column.in_lists ? field_size(feature) : payload;
      return true;
    });
    if (!sound) {
      fault.row = row;
      fault.column = static_cast<uint32_t>(c);
      return false;
    }
    sizes_[row * columns_.size() + c] = value;
    if (!column.in_lists) value = field_size(list_size(column, value));
    maps[column.in_lists] += field_size(entry_size(column, value));
  }
  size = 0;
  for (const bool in_lists : {false, true}) {
    if (present[in_lists]) size += field_size(maps[in_lists]);
  }
  return true;
}

Fault Encode::measure() {
  Fault fault;
  offsets_.resize(rows_ + 1);
  bool all_fixed_columns = true;
  for (const EncodeColumn& column : columns_) all_fixed_columns &= column.fixed_size();
  if (!all_fixed_columns) sizes_.resize(rows_ * columns_.size());

  const auto too_large = [&](uint64_t row, uint64_t size) {
    fault.code = FaultCode::kTooLarge;
    fault.row = row;
    fault.found = static_cast<int64_t>(size);
    return fault;
  };
  if (all_fixed_columns && align_ == 0 && rows_ != 0 && !columns_.empty()) {
    measure_row(0, data_size_, fault);
    head_.resize(kHeaderSize + 11);
    RecordWriter out(head_.data(), head_.size());
    write_head(out, data_size_);
    out.field(kTagFeatures, map_size(0, false));
    head_.resize(out.position());
  }
  if (!all_fixed_columns) {
    std::mutex mutex;
    uint64_t values = 1;
    for (const EncodeColumn& column : columns_) {
      if (!column.fixed_size()) values += value_count(column, rows_);
    }
    // Starting a thread takes longer than measuring a few rows.
    const auto worth = static_cast<size_t>(static_cast<double>(rows_) /
                                           static_cast<double>(values) * kBlockValues);
    const size_t block = std::clamp<size_t>(std::max(rows_ / (threads_ * 4), worth), 1, kBlockRows);
    parallel_blocks(rows_, block, threads_, [&](size_t begin, size_t end) {
      for (size_t row = begin; row < end; ++row) {
        uint64_t size = 0;
        Fault here;
        if (!measure_row(row, size, here)) {
          const std::lock_guard lock(mutex);
          if (!fault || here.row < fault.row) fault = here;
          return;
        }
        offsets_[row] = size;
      }
    });
    if (fault) return fault;
  }
  uint64_t at = 0;
  for (uint64_t row = 0; row < rows_; ++row) {
    const uint64_t size = (fixed_size_ ? data_size_ : offsets_[row]) + lead_size(row);
    if (size > kMaxMessageSize) return too_large(row, size);
    offsets_[row] = at;
    at += size + kFrameSize;
  }
  offsets_[rows_] = at;
  return fault;
}

void Encode::write_entry(RecordWriter& out, uint64_t row, size_t c) const {
  const EncodeColumn& column = columns_[c];
  if (column.fixed_size()) {
    const std::vector<uint8_t>& prefix = entries_[c].prefix;
    out.bytes(prefix.data(), prefix.size());
    out.bytes(column.values + static_cast<int64_t>(row) * column.row_stride,
              column.count * column.itemsize);
    return;
  }
  const uint64_t size = sizes_[row * columns_.size() + c];
  if (column.in_lists) {
    put_key(out, column, size);
    put_lists(out, column, row);
    return;
  }
  put_key(out, column, field_size(list_size(column, size)));
  put_feature_head(out, column, size);
  each_run(column, row, [&](const Run& run) {
    put_payload(out, column, run);
    return true;
  });
}

uint64_t Encode::entry_field_size(uint64_t row, size_t c) const {
  const EncodeColumn& column = columns_[c];
  if (column.fixed_size()) return entries_[c].prefix.size() + column.count * column.itemsize;
  const uint64_t size = sizes_[row * columns_.size() + c];
  const uint64_t value = column.in_lists ? size : field_size(list_size(column, size));
  return field_size(entry_size(column, value));
}

uint64_t Encode::map_size(uint64_t row, bool in_lists) const {
  uint64_t total = 0;
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].in_lists == in_lists) total += entry_field_size(row, c);
  }
  return total;
}

void Encode::write_head(RecordWriter& out, uint64_t size) const {
  uint8_t header[kHeaderSize];
  write_header(header, size);
  out.bytes(header, kHeaderSize);
}

void Encode::write_map(RecordWriter& out, uint64_t row, bool in_lists) const {
  bool present = false;
  for (const EncodeColumn& column : columns_) present |= column.in_lists == in_lists;
  if (!present) return;
  out.field(in_lists ? kTagFeatureLists : kTagFeatures, map_size(row, in_lists));
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].in_lists == in_lists) write_entry(out, row, c);
  }
}

void Encode::write_aligned(RecordWriter& out, uint64_t row) const {
  const auto pad_to = [&](uint64_t at) {
    const uint64_t here = out.position() - kHeaderSize - lead_size(row);
    if (at > here) out.padding(at - here);
  };
  // TensorFlow skips unknown fields of an Example but not of its Features, so
  // each entry gets Features of its own; readers merge them.
  for (size_t c = 0; c < columns_.size(); ++c) {
    pad_to(entries_[c].begin);
    out.field(kTagFeatures, entry_field_size(row, c));
    write_entry(out, row, c);
  }
  pad_to(data_size_);
}

Fault Encode::write(uint8_t* out) const {
  Fault fault;
  std::mutex mutex;
  const uint64_t bytes_per_row = rows_ == 0 ? 1 : offsets_[rows_] / rows_;
  const size_t block = std::clamp<size_t>(kBlockBytes / bytes_per_row, 1, kBlockRows);
  parallel_blocks(rows_, block, threads_, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      uint8_t* const record = out + offsets_[row];
      uint8_t* const data = record + kHeaderSize;
      const uint64_t size = offsets_[row + 1] - offsets_[row] - kFrameSize;
      RecordWriter into(record, kHeaderSize + size);
      if (!head_.empty() && lead_size(row) == 0) {
        into.bytes(head_.data(), head_.size());
        for (size_t c = 0; c < columns_.size(); ++c) write_entry(into, row, c);
      } else {
        write_head(into, size);
        into.bytes(lead_.data(), lead_size(row));
        if (align_ != 0) {
          write_aligned(into, row);
        } else {
          write_map(into, row, false);
          write_map(into, row, true);
        }
      }
      if (!into.exact()) {
        const std::lock_guard lock(mutex);
        fault.code = FaultCode::kChanged;
        fault.row = row;
        return;
      }
      write_footer(data + size, Bytes(data, size));
    }
  });
  return fault;
}

}  // namespace recmap
