#include "decode.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "first_fault.h"
#include "frame.h"
#include "parallel.h"
#include "record_template.h"

namespace recmap {
namespace {

// Records this far ahead are fetched while one is parsed; a gather of random rows would
// otherwise wait for memory at every record.
constexpr size_t kPrefetchDistance = 8;

}  // namespace

Decoder::Decoder(const Records& records, std::span<const Column> columns,
                 const ReadOptions& options, size_t rows_per_array)
    : records_(records),
      columns_(columns),
      options_(options),
      rows_per_array_(rows_per_array),
      block_(balanced_block(records.size(), records_per_block(records, columns.size()),
                            options.threads)),
      totals_(columns.size()),
      measured_(columns.size()),
      longest_(rows_per_array == 0 ? 0 : (records.size() / rows_per_array + 1) * columns.size()) {
  for (size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].dense_numbers()) continue;
    measured_[c] = PooledArray<Measured>(std::max<size_t>(records.size(), 1));
    measures_ = true;
  }
  if (measures_) block_sizes_.resize((records.size() / block_ + 1) * columns.size());
}

Fault Decoder::parse(std::span<const ColumnBuffers> buffers) {
  const bool with_copy = options_.verify && !measures_;
  Fault fault = parse_records(buffers, with_copy ? Checksum::kWithCopy : Checksum::kNone);
  // A record that cannot be read may be damaged, or come behind one that is.
  if (fault && options_.verify) {
    if (const Fault damage = parse_records(buffers, Checksum::kBeforeParse)) fault = damage;
  }
  if (!fault) sum_sizes();
  return fault;
}

Fault Decoder::parse_records(std::span<const ColumnBuffers> buffers, Checksum checksum) {
  FirstFault faults;
  std::mutex mutex;
  findings_ = {};
  each_block(records_.size(), block_, options_.threads, [&](size_t begin, size_t end) {
    RecordReader reader(records_, columns_, options_.count_unknown);
    StepCells step;
    DeferredCopies deferred;
    Findings findings;
    Fault fault;
    RecordTemplate repeated;
    const bool copies = !measures_ && checksum != Checksum::kBeforeParse && options_.steps.empty();
    for (size_t row = begin; row < end; ++row) {
      if (copies) {
        row = repeated.copy(records_, row, end, checksum == Checksum::kWithCopy, buffers);
        if (row == end) break;
      }
      if (row + kPrefetchDistance < end) prefetch(row + kPrefetchDistance);
      if (!parse_record(row, checksum, buffers, reader, step, deferred, fault)) {
        faults.add(fault);
        break;
      }
      if (copies) repeated.learn(reader.data(), reader.parser(), columns_);
      if (!reader.unknown().empty()) findings.add_unknown(reader.unknown(), row);
      if (!reader.description().empty()) findings.add_description(reader.description(), row);
    }
    if (measures_ && !fault) measure_block(begin, end);
    Fault damage;
    if (!deferred.finish(checksum == Checksum::kWithCopy, damage)) {
      damage.offset = records_.offset(damage.row);
      faults.add(damage);
    }
    if (reader.scratch().empty() && findings.empty()) return;
    const std::lock_guard lock(mutex);
    scratches_.push_back(std::move(reader.scratch()));
    findings_.merge(findings);
  });
  return faults.get();
}

bool Decoder::parse_record(size_t row, Checksum checksum, std::span<const ColumnBuffers> buffers,
                           RecordReader& reader, StepCells& step, DeferredCopies& deferred,
                           Fault& fault) {
  if (!reader.read(row, checksum == Checksum::kBeforeParse, fault)) return false;
  bool sound = options_.steps.empty() || take_steps(row, reader, step, fault);
  const std::span<const Cell> cells = options_.steps.empty() ? reader.cells() : step.cells;
  sound = sound && read_columns(row, cells, buffers, deferred, fault);
  // Records whose values were all copied at once are checked here, the others by `deferred`.
  if (sound && !deferred.end_record(row, reader.data()) && checksum == Checksum::kWithCopy) {
    sound = check_data(reader.data(), fault);
  }
  if (sound) return true;
  fault.row = row;
  fault.offset = records_.offset(row);
  return false;
}

bool Decoder::take_steps(size_t row, RecordReader& reader, StepCells& step, Fault& fault) const {
  step.cells.assign(reader.cells().begin(), reader.cells().end());
  const auto number = static_cast<uint64_t>(options_.steps.numbers[row]);
  if (step.record != reader.data().data()) step.ends.assign(columns_.size(), {});
  step.record = reader.data().data();
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (options_.steps.columns[c] == 0) continue;
    if (take_step(columns_[c], number, step.cells[c], reader.scratch(), step.ends[c])) continue;
    fault.code = FaultCode::kMalformed;
    fault.column = static_cast<uint32_t>(c);
    return false;
  }
  return true;
}

bool Decoder::read_columns(size_t row, std::span<const Cell> cells,
                           std::span<const ColumnBuffers> buffers, DeferredCopies& deferred,
                           Fault& fault) {
  for (size_t c = 0; c < columns_.size(); ++c) {
    const Column& column = columns_[c];
    bool sound;
    if (column.dense_numbers()) {
      const size_t size = column.count * column.itemsize;
      const std::span<uint8_t> out = buffers[c].values.subspan(row * size, size);
      sound = copy_dense(column, cells[c], out, deferred, fault);
    } else {
      Measured& measured = measured_[c][row];
      measured = {.cell = cells[c], .size = {}};
      sound = measure_cell(column, cells[c], measured.size, fault);
    }
    if (column.nullable && is_null(column, cells[c])) buffers[c].nulls[row] = 1;
    if (!sound) {
      fault.column = static_cast<uint32_t>(c);
      return false;
    }
  }
  return true;
}

void Decoder::measure_block(size_t begin, size_t end) {
  const auto sizes =
      std::span(block_sizes_).subspan(begin / block_ * columns_.size(), columns_.size());
  std::fill(sizes.begin(), sizes.end(), CellSize{});
  for (size_t row = begin; row < end; ++row) grow_by_row(row, sizes);
  if (rows_per_array_ == 0) return;
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (measured_[c].empty()) continue;
    for (size_t row = begin; row < end;) {
      const size_t array = row / rows_per_array_;
      const size_t stop = std::min(end, (array + 1) * rows_per_array_);
      uint64_t most = 0;
      for (; row < stop; ++row) most = std::max(most, measured_[c][row].size.items);
      // Blocks share arrays.
      std::atomic<uint64_t>& longest = longest_[array * columns_.size() + c];
      uint64_t known = longest.load(std::memory_order_relaxed);
      while (known < most && !longest.compare_exchange_weak(known, most)) {
      }
    }
  }
}

// Turns the sizes of blocks into the places where they begin.
void Decoder::sum_sizes() {
  for (size_t first = 0; first < block_sizes_.size(); first += columns_.size()) {
    for (size_t c = 0; c < columns_.size(); ++c) {
      totals_[c] += std::exchange(block_sizes_[first + c], totals_[c]);
    }
  }
}

void Decoder::grow_by_row(size_t row, std::span<CellSize> sizes) const {
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (!measured_[c].empty()) sizes[c] += measured_[c][row].size;
  }
}

void Decoder::prefetch(size_t row) const {
  const Bytes file = records_.file(row);
  const uint64_t offset = records_.offset(row);
  if (offset < file.size()) __builtin_prefetch(file.data() + offset);
}

Fault Decoder::copy(std::span<const ColumnBuffers> buffers) {
  if (!measures_) return {};
  for (const ColumnBuffers& column : buffers) {
    for (const std::span<int64_t> offsets : {column.outer, column.steps, column.strings}) {
      if (!offsets.empty()) offsets[0] = 0;
    }
  }
  FirstFault faults;
  each_block(records_.size(), block_, options_.threads, [&](size_t begin, size_t end) {
    const auto sizes =
        block_sizes_.begin() + static_cast<std::ptrdiff_t>(begin / block_ * columns_.size());
    Spare spare;
    spare.ends.assign(sizes, sizes + static_cast<std::ptrdiff_t>(columns_.size()));
    Fault fault;
    for (size_t row = begin; row < end; ++row) {
      spare.begins = spare.ends;
      grow_by_row(row, spare.ends);
      if (copy_record(row, buffers, spare, fault)) continue;
      fault.row = row;
      fault.offset = records_.offset(row);
      return faults.add(fault);
    }
  });
  return faults.get();
}

PlacedCell Decoder::placed(size_t row, size_t c, const Spare& spare) const {
  return {measured_[c][row].cell, row, spare.begins[c], spare.ends[c]};
}

bool Decoder::copy_record(size_t row, std::span<const ColumnBuffers> buffers, Spare& spare,
                          Fault& fault) {
  if (options_.verify && !copy_strings_and_check(row, buffers, spare, fault)) return false;
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (measured_[c].empty()) continue;
    const PlacedCell cell = placed(row, c, spare);
    if (options_.verify && is_one_string(columns_[c], cell.cell)) continue;
    if (buffers[c].padded != nullptr
            ? copy_padded(columns_[c], cell, buffers[c], spare.values, fault)
            : copy_placed(columns_[c], cell, buffers[c], fault)) {
      continue;
    }
    fault.column = static_cast<uint32_t>(c);
    return false;
  }
  return true;
}

// Single strings, such as images, are copied while the CRC of the record is computed.
bool Decoder::copy_strings_and_check(size_t row, std::span<const ColumnBuffers> buffers,
                                     Spare& spare, Fault& fault) {
  spare.copies.clear();
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (measured_[c].empty() || !is_one_string(columns_[c], measured_[c][row].cell)) continue;
    spare.copies.push_back(place_string(columns_[c], placed(row, c, spare), buffers[c]));
  }
  Bytes data;
  if (!read_frame(records_.file(row), records_.offset(row), false, data, fault)) return false;
  if (copy_and_checksum(data, spare.copies) == stored_crc(data)) return true;
  if (check_data(data, fault)) fault.code = FaultCode::kChanged;
  return false;
}

}  // namespace recmap
