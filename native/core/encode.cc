#include "encode.h"

#include <algorithm>

#include "first_fault.h"
#include "frame.h"
#include "parallel.h"

namespace recmap {
namespace {

constexpr size_t kBlockRows = 1024;
constexpr size_t kBlockBytes = size_t{1} << 18;
constexpr double kBlockValues = 4096;

}  // namespace

Encoder::Encoder(std::span<const EncodeColumn> columns, uint64_t rows, uint64_t align,
                 size_t threads, Bytes lead)
    : columns_(columns),
      rows_(rows),
      align_(align),
      threads_(std::max<size_t>(threads, 1)),
      lead_(lead),
      fixed_columns_(std::all_of(columns.begin(), columns.end(),
                                 [](const EncodeColumn& c) { return c.fixed_size(); })),
      fixed_size_(align != 0 || fixed_columns_),
      entries_(columns.size()) {
  plan_prefixes();
  if (align_ != 0) plan_aligned();
}

void Encoder::plan_prefixes() {
  for (size_t c = 0; c < columns_.size(); ++c) {
    const EncodeColumn& column = columns_[c];
    if (!column.fixed_size()) continue;
    const uint64_t payload = column.count * column.itemsize;
    std::vector<uint8_t>& prefix = entries_[c].prefix;
    prefix.resize(column.key.size() + 64);
    RecordWriter out(prefix.data(), prefix.size());
    write_key(out, column, field_size(list_size(column, payload)));
    write_feature_head(out, column, payload);
    prefix.resize(out.position());
  }
}

// Without lists, strings and varints, all records begin alike.
void Encoder::plan_head() {
  Fault unused;  // sizes that are fixed cannot fail
  measure_row(0, data_size_, unused);
  head_.resize(kHeaderSize + 11);
  RecordWriter out(head_.data(), head_.size());
  write_head(out, data_size_);
  out.field(kTagFeatures, map_size(0, false));
  head_.resize(out.position());
}

void Encoder::plan_aligned() {
  uint64_t at = 0;
  bool may_be_short = false;  // the entry before may take less than its largest size
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

bool Encoder::measure_row(uint64_t row, uint64_t& size, Fault& fault) {
  uint64_t maps[2] = {0, 0};
  bool present[2] = {false, false};
  for (size_t c = 0; c < columns_.size(); ++c) {
    const EncodeColumn& column = columns_[c];
    present[column.in_lists] = true;
    if (column.fixed_size()) {
      maps[0] += entries_[c].prefix.size() + column.count * column.itemsize;
      continue;
    }
    if (column.is_null(row)) continue;
    uint64_t value;
    if (!measure_values(column, row, value, fault)) {
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

Fault Encoder::measure() {
  offsets_.resize(rows_ + 1);
  if (!fixed_columns_) {
    sizes_.resize(rows_ * columns_.size());
    if (const Fault fault = measure_rows()) return fault;
  } else if (align_ == 0 && rows_ != 0 && !columns_.empty()) {
    plan_head();
  }
  return sum_sizes();
}

Fault Encoder::measure_rows() {
  uint64_t values = 1;
  for (const EncodeColumn& column : columns_) {
    if (!column.fixed_size()) values += value_count(column, rows_);
  }
  // Starting a thread takes longer than measuring a few rows.
  const auto worthwhile =
      static_cast<size_t>(static_cast<double>(rows_) / static_cast<double>(values) * kBlockValues);
  const size_t block =
      std::clamp<size_t>(std::max(rows_ / (threads_ * 4), worthwhile), 1, kBlockRows);
  FirstFault faults;
  parallel_blocks(rows_, block, threads_, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      Fault fault;
      if (!measure_row(row, offsets_[row], fault)) return faults.add(fault);
    }
  });
  return faults.get();
}

// Turns the size of each record into its offset.
Fault Encoder::sum_sizes() {
  uint64_t at = 0;
  for (uint64_t row = 0; row < rows_; ++row) {
    const uint64_t size = (fixed_size_ ? data_size_ : offsets_[row]) + lead_size(row);
    if (size > kMaxMessageSize) {
      Fault fault;
      fault.code = FaultCode::kTooLarge;
      fault.row = row;
      fault.found = static_cast<int64_t>(size);
      return fault;
    }
    offsets_[row] = at;
    at += size + kFrameSize;
  }
  offsets_[rows_] = at;
  return {};
}

// Inline, because it is all there is to most records.
inline void Encoder::write_fixed_entry(RecordWriter& out, uint64_t row, size_t c) const {
  const EncodeColumn& column = columns_[c];
  const std::vector<uint8_t>& prefix = entries_[c].prefix;
  out.bytes(prefix.data(), prefix.size());
  out.bytes(column.values + static_cast<int64_t>(row) * column.row_stride,
            column.count * column.itemsize);
}

void Encoder::write_entry(RecordWriter& out, uint64_t row, size_t c) const {
  const EncodeColumn& column = columns_[c];
  if (column.fixed_size()) return write_fixed_entry(out, row, c);
  if (column.is_null(row)) return;
  const uint64_t size = sizes_[row * columns_.size() + c];
  if (column.in_lists) {
    write_key(out, column, size);
    write_steps(out, column, row);
    return;
  }
  write_key(out, column, field_size(list_size(column, size)));
  write_feature_head(out, column, size);
  write_payload(out, column, row);
}

uint64_t Encoder::entry_field_size(uint64_t row, size_t c) const {
  const EncodeColumn& column = columns_[c];
  if (column.fixed_size()) return entries_[c].prefix.size() + column.count * column.itemsize;
  if (column.is_null(row)) return 0;
  const uint64_t size = sizes_[row * columns_.size() + c];
  const uint64_t value = column.in_lists ? size : field_size(list_size(column, size));
  return field_size(entry_size(column, value));
}

uint64_t Encoder::map_size(uint64_t row, bool in_lists) const {
  uint64_t total = 0;
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].in_lists == in_lists) total += entry_field_size(row, c);
  }
  return total;
}

void Encoder::write_head(RecordWriter& out, uint64_t size) const {
  uint8_t header[kHeaderSize];
  write_header(header, size);
  out.bytes(header, kHeaderSize);
}

void Encoder::write_map(RecordWriter& out, uint64_t row, bool in_lists) const {
  bool present = false;
  for (const EncodeColumn& column : columns_) present |= column.in_lists == in_lists;
  if (!present) return;
  out.field(in_lists ? kTagFeatureLists : kTagFeatures, map_size(row, in_lists));
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].in_lists == in_lists) write_entry(out, row, c);
  }
}

void Encoder::write_aligned(RecordWriter& out, uint64_t row) const {
  const auto pad_to = [&](uint64_t at) {
    const uint64_t here = out.position() - kHeaderSize - lead_size(row);
    if (at > here) out.padding(at - here);
  };
  // TensorFlow skips unknown fields of an Example, but not of its Features. So each entry gets
  // Features of its own, which readers merge.
  for (size_t c = 0; c < columns_.size(); ++c) {
    pad_to(entries_[c].begin);
    out.field(kTagFeatures, entry_field_size(row, c));
    write_entry(out, row, c);
  }
  pad_to(data_size_);
}

// Inlined by force: with a call for each record, small ones take up to twice as long.
[[gnu::always_inline]] inline bool Encoder::write_record(uint64_t row, uint8_t* record) const {
  uint8_t* const data = record + kHeaderSize;
  const uint64_t size = offsets_[row + 1] - offsets_[row] - kFrameSize;
  RecordWriter out(record, kHeaderSize + size);
  if (!head_.empty() && lead_size(row) == 0) {
    out.bytes(head_.data(), head_.size());
    // There is a head only if every column has a fixed size.
    for (size_t c = 0; c < columns_.size(); ++c) write_fixed_entry(out, row, c);
  } else {
    write_head(out, size);
    out.bytes(lead_.data(), lead_size(row));
    if (align_ != 0) {
      write_aligned(out, row);
    } else {
      write_map(out, row, false);
      write_map(out, row, true);
    }
  }
  if (!out.exact()) return false;
  write_footer(data + size, Bytes(data, size));
  return true;
}

Fault Encoder::write(uint8_t* out) const {
  const uint64_t bytes_per_row = rows_ == 0 ? 1 : offsets_[rows_] / rows_;
  const size_t block = std::clamp<size_t>(kBlockBytes / bytes_per_row, 1, kBlockRows);
  FirstFault faults;
  parallel_blocks(rows_, block, threads_, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      if (write_record(row, out + offsets_[row])) continue;
      Fault fault;
      fault.code = FaultCode::kChanged;
      fault.row = row;
      return faults.add(fault);
    }
  });
  return faults.get();
}

}  // namespace recmap
