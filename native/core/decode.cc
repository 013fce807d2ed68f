#include "decode.h"

#include <algorithm>
#include <mutex>

#include "first_fault.h"
#include "frame.h"
#include "parallel.h"

namespace recmap {
namespace {

// Records this far ahead are fetched while one is parsed; a gather of random rows would
// otherwise wait for memory at every record.
constexpr size_t kPrefetchDistance = 8;

}  // namespace

Decoder::Decoder(const Records& records, std::span<const Column> columns,
                 const ReadOptions& options)
    : records_(records),
      columns_(columns),
      options_(options),
      block_(records_per_block(records)),
      totals_(columns.size()),
      measured_(columns.size()) {
  for (size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].dense_numbers()) continue;
    measured_[c].resize(records.size() + 1);
    measures_ = true;
  }
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
  parallel_blocks(records_.size(), block_, options_.threads, [&](size_t begin, size_t end) {
    RecordReader reader(records_, columns_, options_.count_unknown);
    DeferredCopies deferred;
    Findings findings;
    Fault fault;
    for (size_t row = begin; row < end; ++row) {
      if (row + kPrefetchDistance < end) prefetch(row + kPrefetchDistance);
      if (!parse_record(row, checksum, buffers, reader, deferred, fault)) {
        faults.add(fault);
        break;
      }
      if (!reader.unknown().empty()) findings.add_unknown(reader.unknown(), row);
      if (!reader.description().empty()) findings.add_description(reader.description(), row);
    }
    Fault damage;
    if (!deferred.finish(checksum == Checksum::kWithCopy, damage)) {
      damage.offset = records_.offsets[damage.row];
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
                           RecordReader& reader, DeferredCopies& deferred, Fault& fault) {
  if (!reader.read(row, checksum == Checksum::kBeforeParse, fault)) return false;
  bool sound = read_columns(row, reader.cells(), buffers, deferred, fault);
  // Records whose values were all copied at once are checked here, the others by `deferred`.
  if (sound && !deferred.end_record(row, reader.data()) && checksum == Checksum::kWithCopy) {
    sound = check_data(reader.data(), fault);
  }
  if (sound) return true;
  fault.row = row;
  fault.offset = records_.offsets[row];
  return false;
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
      measured.cell = cells[c];
      sound = measure_cell(column, cells[c], measured.size, fault);
    }
    if (!sound) {
      fault.column = static_cast<uint32_t>(c);
      return false;
    }
  }
  return true;
}

// Turns the size of each row into the place where it begins.
void Decoder::sum_sizes() {
  for (size_t c = 0; c < columns_.size(); ++c) {
    CellSize sum;
    for (Measured& measured : measured_[c]) {
      const CellSize own = measured.size;
      measured.size = sum;
      sum.steps += own.steps;
      sum.items += own.items;
      sum.bytes += own.bytes;
    }
    totals_[c] = sum;
  }
}

void Decoder::prefetch(size_t row) const {
  const Bytes file = records_.file(row);
  const uint64_t offset = records_.offsets[row];
  if (offset < file.size()) __builtin_prefetch(file.data() + offset);
}

uint64_t Decoder::longest(size_t c, size_t begin, size_t end) const {
  uint64_t most = 0;
  for (size_t row = begin; row < end; ++row) {
    most = std::max(most, measured_[c][row + 1].size.items - measured_[c][row].size.items);
  }
  return most;
}

Fault Decoder::copy(std::span<const ColumnBuffers> buffers) {
  for (const ColumnBuffers& column : buffers) {
    for (const std::span<int64_t> offsets : {column.outer, column.steps, column.strings}) {
      if (!offsets.empty()) offsets[0] = 0;
    }
  }
  FirstFault faults;
  parallel_blocks(records_.size(), block_, options_.threads, [&](size_t begin, size_t end) {
    Spare spare;
    Fault fault;
    for (size_t row = begin; row < end; ++row) {
      if (copy_record(row, buffers, spare, fault)) continue;
      fault.row = row;
      fault.offset = records_.offsets[row];
      return faults.add(fault);
    }
  });
  return faults.get();
}

PlacedCell Decoder::placed(size_t row, size_t c) const {
  const std::vector<Measured>& column = measured_[c];
  return {column[row].cell, row, column[row].size, column[row + 1].size};
}

bool Decoder::copy_record(size_t row, std::span<const ColumnBuffers> buffers, Spare& spare,
                          Fault& fault) {
  if (options_.verify && !copy_strings_and_check(row, buffers, spare, fault)) return false;
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (measured_[c].empty()) continue;
    const PlacedCell cell = placed(row, c);
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
    spare.copies.push_back(place_string(columns_[c], placed(row, c), buffers[c]));
  }
  Bytes data;
  if (!read_frame(records_.file(row), records_.offsets[row], false, data, fault)) return false;
  if (copy_and_checksum(data, spare.copies) == stored_crc(data)) return true;
  if (check_data(data, fault)) fault.code = FaultCode::kChanged;
  return false;
}

}  // namespace recmap
