#include "decode.h"

#include <algorithm>
#include <mutex>

#include "copy_cache_lines.h"
#include "parallel.h"
#include "record_parser.h"

namespace recmap {
namespace {

// About this many bytes of records make a block of rows worth handing out.
constexpr size_t kBlockBytes = size_t{1} << 18;
// Records this far ahead are fetched while one is decoded; a gather of random
// rows would otherwise wait for memory at every record.
constexpr size_t kAhead = 8;
// Smaller rows are copied as they come.
constexpr size_t kMinCopy = 256;
constexpr size_t kMaxLines = 16 << 10;

size_t block_rows(const Records& records) {
  if (records.size() == 0) return 1;
  // The first few records tell the size well enough.
  size_t sampled = 0;
  uint64_t bytes = 0;
  Fault ignored;
  for (Bytes data; sampled < std::min<size_t>(records.size(), 16); ++sampled) {
    const Bytes file = records.files[sampled];
    if (read_frame(file, records.offsets[sampled], false, data, ignored)) bytes += data.size();
    bytes += kFrameSize;
  }
  return std::clamp<size_t>(kBlockBytes * sampled / bytes, 1, 1 << 14);
}

// Keeps the fault of the lowest row, so that the result does not depend on how
// the threads ran.
class FirstFault {
 public:
  void add(const Fault& fault) {
    const std::lock_guard lock(mutex_);
    if (!fault_ || fault.row < fault_.row) fault_ = fault;
  }
  const Fault& get() const { return fault_; }

 private:
  std::mutex mutex_;
  Fault fault_;
};

bool walk_record(Bytes data, RecordParser& parser, Fault& fault) {
  if (data.size() > kMaxMessageSize) {
    fault.code = FaultCode::kTooLarge;
    fault.found = static_cast<int64_t>(data.size());
    return false;
  }
  if (parser.walk(data)) {
    if (!parser.empty()) return true;
    fault.code = FaultCode::kNoFeatures;
    return false;
  }
  fault.code = FaultCode::kMalformed;
  return false;
}

void count_unknown(const RecordParser& parser, size_t row, UnknownFeatures& found) {
  for (const RecordParser::Unknown& unknown : parser.unknown()) {
    UnknownFeature& feature =
        found[{unknown.in_lists, std::string(unknown.key.begin(), unknown.key.end())}];
    if (feature.rows++ == 0) {
      feature.kind = unknown.kind;
      feature.first_row = row;
    }
  }
}

void join_unknown(const UnknownFeatures& more, UnknownFeatures& all) {
  for (const auto& [key, feature] : more) {
    UnknownFeature& known = all[key];
    if (feature.first_row < known.first_row) {
      known.kind = feature.kind;
      known.first_row = feature.first_row;
    }
    known.rows += feature.rows;
  }
}

}  // namespace

// Kept out of line: few records begin with one.
[[gnu::noinline, gnu::cold]] void note_description(const RecordParser& parser, uint64_t row,
                                                   Descriptions& found) {
  const Bytes content = parser.description();
  found.try_emplace({content.begin(), content.end()}, row);
}

void join_descriptions(const Descriptions& more, Descriptions& all) {
  for (const auto& [content, row] : more) {
    uint64_t& first = all.try_emplace(content, row).first->second;
    first = std::min(first, row);
  }
}

namespace {

// Whether the cell's bytes are the row's bytes.
bool is_exact(const Column& column, const Cell& cell) {
  return column.dense_numbers() && cell.form == Cell::Form::kPacked &&
         cell.bytes.size() == column.count * column.itemsize &&
         (column.kind == Kind::kNone || column.kind == cell.kind) &&
         (cell.kind == Kind::kBytes ||
          (cell.kind == Kind::kFloat && column.dtype == Dtype::kFloat32));
}

// Whether a row of the column is the one string in the cell.
bool is_one_string(const Column& column, const Cell& cell) {
  return column.dtype == Dtype::kBytes && column.ragged == 0 && column.count == 1 &&
         cell.form == Cell::Form::kPacked && cell.kind == Kind::kBytes && !cell.bytes.empty();
}

// Rows of up to a few pages: the library's copy is made for longer ones.
void copy_plain(const Copy& copy) {
  if (copy.size <= kMaxLines) {
    copy_cache_lines(copy.to, copy.from, copy.size);
  } else {
    std::memcpy(copy.to, copy.from, copy.size);
  }
}

// Copies, and returns the masked CRC of the record the bytes lie in.
inline uint32_t copy_and_sum(Bytes data, std::span<Copy> copies) {
  if (copies.size() > 1) {
    std::sort(copies.begin(), copies.end(),
              [](const Copy& a, const Copy& b) { return a.from < b.from; });
  }
  const uint8_t* at = data.data();
  const uint8_t* const end = at + data.size();
  uint32_t crc = 0;
  for (const Copy& copy : copies) {
    if (copy.from < at || copy.from > end || copy.size > static_cast<size_t>(end - copy.from)) {
      copy_plain(copy);  // it lies in scratch
      continue;
    }
    crc = crc32c_extend(crc, at, static_cast<size_t>(copy.from - at));
    crc = crc32c_copy(crc, copy.from, copy.size, copy.to);
    at = copy.from + copy.size;
  }
  return mask_crc(crc32c_extend(crc, at, static_cast<size_t>(end - at)));
}

// Makes the copies that records left, and checks the records if `verify`: the
// first that is damaged, or the end. Little else is stored meanwhile (copy_cache_lines.h).
const Walked* finish(std::span<const Walked> records, std::span<Copy> copies, bool verify) {
  if (!verify) {
    for (const Copy& copy : copies) copy_plain(copy);
    return records.data() + records.size();
  }
  const Walked* record = records.data();
  for (; record != records.data() + records.size(); ++record) {
    const uint32_t crc = copy_and_sum(record->data, copies.first(record->copies));
    if (crc != stored_crc(record->data)) break;
    copies = copies.subspan(record->copies);
  }
  return record;
}

bool fill_dense(const Column& column, const Cell& cell, std::span<uint8_t> out,
                std::vector<Copy>& copies, Fault& fault) {
  if (is_exact(column, cell)) {
    if (out.size() >= kMinCopy) {
      copies.push_back({out.data(), cell.bytes.data(), out.size()});
    } else if (!out.empty()) {
      std::memcpy(out.data(), cell.bytes.data(), out.size());
    }
    return true;
  }
  // One int64, by far the most common feature beside the payload.
  if (cell.form == Cell::Form::kPacked && cell.kind == Kind::kInt64 &&
      column.dtype == Dtype::kInt64 && column.count == 1) {
    Cursor cursor(cell.bytes);
    uint64_t value;
    if (cursor.varint(value) && cursor.done()) {
      store_le(out.data(), value);
      return true;
    }
  }
  CellSize tally;
  if (!measure(column, cell, tally, fault)) return false;
  CellOutput room;
  room.at = out.data();
  room.end = out.data() + out.size();
  if (!copy_cell(column, cell, room, fault)) return false;
  if (room.full()) return true;
  fault.code = FaultCode::kChanged;
  return false;
}

}  // namespace

Decode::Decode(const Records& records, std::span<const Column> columns, bool verify, size_t threads,
               bool watch)
    : records_(records),
      columns_(columns),
      verify_(verify),
      threads_(threads),
      block_(block_rows(records)),
      watch_(watch),
      totals_(columns.size()),
      pending_(columns.size()) {
  for (size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].dense_numbers()) continue;
    pending_[c].resize(records.size() + 1);
    measures_ = true;
  }
}

void Decode::prefetch(size_t row) const {
  const Bytes file = records_.files[row];
  const uint64_t offset = records_.offsets[row];
  if (offset < file.size()) __builtin_prefetch(file.data() + offset);
}

bool Decode::walk_row(size_t row, Bytes data, RecordParser& parser,
                      std::span<const ColumnBuffers> buffers, std::vector<Copy>& copies,
                      Fault& fault) {
  if (!walk_record(data, parser, fault)) return false;
  for (size_t c = 0; c < columns_.size(); ++c) {
    const Cell& cell = parser.cells()[c];
    bool sound;
    if (columns_[c].dense_numbers()) {
      const size_t size = columns_[c].count * columns_[c].itemsize;
      const std::span<uint8_t> out = buffers[c].values.subspan(row * size, size);
      sound = fill_dense(columns_[c], cell, out, copies, fault);
    } else {
      pending_[c][row].cell = cell;
      sound = measure(columns_[c], cell, pending_[c][row].start, fault);
    }
    if (!sound) {
      fault.column = static_cast<uint32_t>(c);
      return false;
    }
  }
  return true;
}

Fault Decode::walk_rows(std::span<const ColumnBuffers> buffers, Check check) {
  FirstFault faults;
  std::mutex kept_mutex;
  unknown_.clear();
  descriptions_.clear();
  parallel_blocks(records_.size(), block_, threads_, [&](size_t begin, size_t end) {
    RecordParser parser(columns_, watch_);
    UnknownFeatures unknown;
    Descriptions descriptions;
    std::vector<Copy> copies;
    std::vector<Walked> walked;
    size_t row = begin;
    const auto fail = [&](size_t at, Fault& fault) {
      fault.row = at;
      fault.offset = records_.offsets[at];
      faults.add(fault);
    };
    for (; row < end; ++row) {
      if (row + kAhead < end) prefetch(row + kAhead);
      Fault fault;
      Bytes data;
      const size_t before = copies.size();
      if (!read_frame(records_.files[row], records_.offsets[row], check == Check::kBefore, data,
                      fault) ||
          !walk_row(row, data, parser, buffers, copies, fault)) {
        fail(row, fault);
        break;
      }
      if (!parser.unknown().empty()) count_unknown(parser, row, unknown);
      if (!parser.description().empty()) note_description(parser, row, descriptions);
      if (copies.size() != before) {
        walked.push_back({row, data, copies.size() - before});
      } else if (check == Check::kAfter && !check_data(data, fault)) {
        fail(row, fault);
        break;
      }
    }
    const Walked* const damaged = finish(walked, copies, check == Check::kAfter);
    if (damaged != walked.data() + walked.size()) {
      Fault fault;
      if (check_data(damaged->data, fault)) fault.code = FaultCode::kChanged;
      fail(damaged->row, fault);
    }
    if (!parser.scratch().empty() || !unknown.empty() || !descriptions.empty()) {
      const std::lock_guard lock(kept_mutex);
      scratches_.push_back(std::move(parser.scratch()));
      join_unknown(unknown, unknown_);
      join_descriptions(descriptions, descriptions_);
    }
  });
  return faults.get();
}

Fault Decode::first(std::span<const ColumnBuffers> buffers) {
  Fault fault = walk_rows(buffers, verify_ && !measures_ ? Check::kAfter : Check::kNot);
  // What does not decode may be damaged, or come behind a record that is.
  if (fault && verify_) {
    if (const Fault damage = walk_rows(buffers, Check::kBefore)) fault = damage;
  }
  if (fault) return fault;
  for (size_t c = 0; c < columns_.size(); ++c) {
    CellSize sum;
    for (Pending& pending : pending_[c]) {
      const CellSize own = pending.start;
      pending.start = sum;
      sum.steps += own.steps;
      sum.items += own.items;
      sum.bytes += own.bytes;
    }
    totals_[c] = sum;
  }
  return {};
}

uint64_t Decode::longest(size_t c, size_t begin, size_t end) const {
  uint64_t most = 0;
  for (size_t row = begin; row < end; ++row) {
    most = std::max(most, pending_[c][row + 1].start.items - pending_[c][row].start.items);
  }
  return most;
}

CellOutput Decode::room_of(size_t row, size_t c, const ColumnBuffers& out) const {
  const Column& column = columns_[c];
  const CellSize& from = pending_[c][row].start;
  const CellSize& to = pending_[c][row + 1].start;
  const bool strings = column.dtype == Dtype::kBytes;
  const uint64_t item_size = column.count * column.itemsize;
  CellOutput room;
  room.base = out.values.data();
  room.at = out.values.data() + (strings ? from.bytes : from.items * item_size);
  room.end = out.values.data() + (strings ? to.bytes : to.items * item_size);
  if (strings) {
    const uint64_t per_item = column.ragged == 0 ? 1 : column.count;
    room.strings = out.strings.data() + 1 + from.items * per_item;
    room.strings_end = out.strings.data() + 1 + to.items * per_item;
  }
  if (column.ragged != 0) out.outer[row + 1] = static_cast<int64_t>(to.steps);
  if (column.ragged == 2) {
    room.steps = out.steps.data() + 1 + from.steps;
    room.steps_end = out.steps.data() + 1 + to.steps;
    room.first_item = static_cast<int64_t>(from.items);
  }
  return room;
}

bool Decode::copy_measured(size_t row, size_t c, const ColumnBuffers& out, Fault& fault) {
  CellOutput room = room_of(row, c, out);
  if (!copy_cell(columns_[c], pending_[c][row].cell, room, fault)) return false;
  if (room.full()) return true;
  fault.code = FaultCode::kChanged;
  return false;
}

bool Decode::copy_padded(size_t row, size_t c, const ColumnBuffers& out, Spare& spare,
                         Fault& fault) {
  const PaddedRows& rows = *out.padded;
  const PaddedArray& array = rows.arrays[row / rows.rows];
  const CellSize& from = pending_[c][row].start;
  const CellSize& to = pending_[c][row + 1].start;
  out.outer[row + 1] = static_cast<int64_t>(to.items);
  const size_t size = (to.items - from.items) * rows.fill.size();
  const size_t kept = std::min(size, array.width);
  const size_t gap = rows.sides.fill_left ? array.width - kept : 0;
  uint8_t* const place = array.values + row % rows.rows * array.width;
  // What is cut off has to be read all the same, to see that it is sound.
  const bool whole = size == kept;
  if (!whole) spare.values.resize(size);
  uint8_t* const values = whole ? place + gap : spare.values.data();
  CellOutput room;
  room.at = values;
  room.end = values + size;
  if (!copy_cell(columns_[c], pending_[c][row].cell, room, fault)) return false;
  if (!room.full()) {
    fault.code = FaultCode::kChanged;
    return false;
  }
  if (!whole && kept != 0) {
    std::memcpy(place, values + (rows.sides.keep_last ? size - kept : 0), kept);
  }
  fill_items(place, gap, rows.fill);
  fill_items(place + gap + kept, array.width - gap - kept, rows.fill);
  return true;
}

bool Decode::copy_row(size_t row, std::span<const ColumnBuffers> buffers, Spare& spare,
                      Fault& fault) {
  std::vector<Copy>& copies = spare.copies;
  copies.clear();
  if (verify_) {
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (pending_[c].empty() || !is_one_string(columns_[c], pending_[c][row].cell)) continue;
      const CellOutput room = room_of(row, c, buffers[c]);
      const Bytes string = pending_[c][row].cell.bytes;
      copies.push_back({room.at, string.data(), string.size()});
      *room.strings = room.end - room.base;
    }
    Bytes data;
    if (!read_frame(records_.files[row], records_.offsets[row], false, data, fault)) return false;
    if (copy_and_sum(data, copies) != stored_crc(data)) {
      if (check_data(data, fault)) fault.code = FaultCode::kChanged;
      return false;
    }
  }
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (pending_[c].empty()) continue;
    if (verify_ && is_one_string(columns_[c], pending_[c][row].cell)) continue;
    if (buffers[c].padded != nullptr ? copy_padded(row, c, buffers[c], spare, fault)
                                     : copy_measured(row, c, buffers[c], fault)) {
      continue;
    }
    fault.column = static_cast<uint32_t>(c);
    return false;
  }
  return true;
}

Fault Decode::second(std::span<const ColumnBuffers> buffers) {
  FirstFault faults;
  for (size_t c = 0; c < columns_.size(); ++c) {
    for (const std::span<int64_t> offsets :
         {buffers[c].outer, buffers[c].steps, buffers[c].strings}) {
      if (!offsets.empty()) offsets[0] = 0;
    }
  }
  parallel_blocks(records_.size(), block_, threads_, [&](size_t begin, size_t end) {
    Spare spare;
    for (size_t row = begin; row < end; ++row) {
      Fault fault;
      if (copy_row(row, buffers, spare, fault)) continue;
      fault.row = row;
      fault.offset = records_.offsets[row];
      return faults.add(fault);
    }
  });
  return faults.get();
}

std::vector<Fault> check_rows(Bytes file, std::span<const uint64_t> offsets,
                              std::span<const Column> columns, bool verify, size_t threads,
                              bool watch, Descriptions* descriptions) {
  std::vector<Fault> faults;
  std::mutex mutex;
  parallel_blocks(
      offsets.size(), block_rows({{{&file, 1}}, offsets}), threads, [&](size_t begin, size_t end) {
        RecordParser parser(columns, watch);
        Descriptions mine;
        std::vector<uint8_t> values;
        std::vector<int64_t> strings;
        std::vector<int64_t> steps;
        for (size_t row = begin; row < end; ++row) {
          Fault fault;
          Bytes data;
          bool sound = read_frame(file, offsets[row], verify, data, fault) &&
                       walk_record(data, parser, fault);
          if (sound && !parser.description().empty()) note_description(parser, row, mine);
          for (size_t c = 0; sound && c < columns.size(); ++c) {
            const Column& column = columns[c];
            CellSize tally;
            sound = measure(column, parser.cells()[c], tally, fault);
            if (sound) {
              values.resize(column.dtype == Dtype::kBytes ? tally.bytes
                            : column.ragged == 0 ? column.count * column.itemsize
                                                 : tally.items * column.count * column.itemsize);
              strings.resize(column.ragged == 0 ? tally.items : tally.items * column.count);
              steps.resize(tally.steps);
              CellOutput room;
              room.base = room.at = values.data();
              room.end = values.data() + values.size();
              room.strings = strings.data();
              room.strings_end = strings.data() + strings.size();
              room.steps = steps.data();
              room.steps_end = steps.data() + steps.size();
              sound = copy_cell(column, parser.cells()[c], room, fault);
            }
            if (!sound) fault.column = static_cast<uint32_t>(c);
          }
          if (sound && !parser.unknown().empty()) {
            fault.code = FaultCode::kUnknown;
            fault.found = static_cast<int64_t>(parser.unknown()[0].kind);
            sound = false;
          }
          parser.scratch().clear();
          if (sound) continue;
          fault.row = row;
          fault.offset = offsets[row];
          const std::lock_guard lock(mutex);
          faults.push_back(fault);
        }
        if (descriptions == nullptr || mine.empty()) return;
        const std::lock_guard lock(mutex);
        join_descriptions(mine, *descriptions);
      });
  std::sort(faults.begin(), faults.end(),
            [](const Fault& a, const Fault& b) { return a.row < b.row; });
  return faults;
}

}  // namespace recmap
