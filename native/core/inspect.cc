#include "inspect.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "example.h"
#include "parallel.h"
#include "record_parser.h"

namespace recmap {
namespace {

bool add_values(const Cell& cell, uint64_t row, FeatureFacts& facts) {
  uint64_t values = 0;
  bool sound = true;
  const bool walked = visit_chunks(cell, [&](uint32_t tag, Bytes chunk) {
    if (cell.kind == Kind::kBytes) {
      ++values;
      facts.string_size.add(chunk.size());
      facts.string_size_bits |= chunk.size();
    } else if (tag != kTagPacked) {
      ++values;
    } else if (cell.kind == Kind::kFloat) {
      sound &= chunk.size() % 4 == 0;
      values += chunk.size() / 4;
    } else {
      sound &= chunk.empty() || chunk.back() < 0x80;
      values += static_cast<uint64_t>(
          std::count_if(chunk.begin(), chunk.end(), [](uint8_t byte) { return byte < 0x80; }));
    }
    return true;
  });
  facts.values.add(values);
  uint64_t& first = facts.first_row[static_cast<size_t>(cell.kind)];
  first = std::min(first, row);
  return walked && sound;
}

bool add_cell(const Cell& cell, uint64_t row, FeatureFacts& facts) {
  if (cell.form == Cell::Form::kMissing) return true;
  ++facts.rows;
  if (cell.form != Cell::Form::kSteps) return add_values(cell, row, facts);
  uint64_t steps = 0;
  const bool walked = visit_steps(cell, [&](const Cell& step) {
    ++steps;
    if (step.form == Cell::Form::kMissing) {
      facts.values.add(0);
      return true;
    }
    return add_values(step, row, facts);
  });
  facts.steps.add(steps);
  return walked;
}

// All entries of one record; of equal keys the last.
using RecordCells = std::map<FactsKey, Cell>;

bool collect(Bytes record, bool lists, Scratch& scratch, RecordCells& cells) {
  bool sound = true;
  const bool walked =
      walk_example(record, lists, scratch, [&](bool in_lists, Bytes key, const Cell& cell, Bytes) {
        sound = sound && is_utf8(key);
        cells[{in_lists, std::string(key.begin(), key.end())}] = cell;
      });
  return walked && sound;
}

bool lists_are_sound(const RecordCells& cells) {
  return std::all_of(cells.begin(), cells.end(), [](const auto& entry) {
    FeatureFacts ignored;
    return !entry.first.first || add_cell(entry.second, 0, ignored);
  });
}

bool add_record(Bytes record, uint64_t row, Facts& facts) {
  Scratch scratch;
  RecordCells cells;
  if (!collect(record, true, scratch, cells) || !lists_are_sound(cells)) {
    // Field 2 of a plain Example is unknown and may hold anything.
    cells.clear();
    if (!collect(record, false, scratch, cells)) return false;
  }
  // All of it first: what a bad record holds does not count.
  const bool sound = std::all_of(cells.begin(), cells.end(), [](const auto& entry) {
    FeatureFacts ignored;
    return add_cell(entry.second, 0, ignored);
  });
  if (!sound) return false;
  for (const auto& [key, cell] : cells) add_cell(cell, row, facts.features[key]);
  return true;
}

bool has_values(Bytes record) {
  Scratch scratch;
  bool found = false;
  const auto look = [&](bool, Bytes, const Cell& cell, Bytes) {
    found |= cell.form != Cell::Form::kMissing;
  };
  walk_example(record, true, scratch, look);
  return found;
}

}  // namespace

Facts inspect(Bytes file, std::span<const uint64_t> offsets, bool verify) {
  Facts facts;
  for (size_t row = 0; row < offsets.size(); ++row) {
    Fault fault;
    fault.row = row;
    Bytes data;
    if (!read_frame(file, offsets[row], verify, data, fault)) {
      facts.not_example = fault;
      return facts;
    }
    const bool empty = !data.empty() && !has_values(data) && has_no_features(data);
    if (empty || data.size() > kMaxMessageSize || !add_record(data, row, facts)) {
      fault.offset = offsets[row];
      fault.code = empty ? FaultCode::kNoFeatures : FaultCode::kMalformed;
      facts.not_example = fault;
      return facts;
    }
    ++facts.rows;
  }
  return facts;
}

std::vector<Slot> find_slots(Bytes file, uint64_t offset, std::span<const Column> columns) {
  std::vector<Slot> slots;
  Bytes data;
  Fault ignored;
  RecordParser parser(columns);
  if (!read_frame(file, offset, false, data, ignored) || !parser.walk(data)) return slots;
  for (const Cell& cell : parser.cells()) {
    // A payload put together in scratch does not lie in the file.
    const bool in_file = cell.form == Cell::Form::kPacked && cell.bytes.data() >= data.data() &&
                         cell.bytes.data() <= data.data() + data.size();
    slots.push_back(in_file ? Slot{static_cast<uint64_t>(cell.bytes.data() - file.data()) - offset,
                                   cell.bytes.size(), cell.kind}
                            : Slot{});
  }
  return slots;
}

SlotCheck check_slots(Bytes file, uint64_t first, uint64_t stride, uint64_t lead, uint64_t count,
                      std::span<const Column> columns, std::span<const Slot> slots, bool verify,
                      size_t threads) {
  SlotCheck result;
  std::vector<std::atomic<uint8_t>> holds(columns.size());
  for (size_t c = 0; c < columns.size(); ++c) holds[c] = slots[c].kind != Kind::kNone;
  std::mutex mutex;
  const size_t block = std::clamp<size_t>((size_t{1} << 20) / stride, 1, 1 << 16);
  parallel_blocks(count, block, threads, [&](size_t begin, size_t end) {
    RecordParser parser(columns);
    Descriptions descriptions;
    for (size_t row = begin; row < end; ++row) {
      const uint64_t offset = first + strided_offset(row, stride, lead);
      const uint64_t next = first + strided_offset(row + 1, stride, lead);
      Fault fault;
      Bytes data;
      bool sound = read_frame(file, offset, verify, data, fault);
      if (sound && data.size() + kFrameSize != next - offset) {
        fault.code = FaultCode::kChanged;
        sound = false;
      }
      if (sound && !parser.walk(data)) {
        fault.code = FaultCode::kMalformed;
        sound = false;
      }
      if (!sound) {
        fault.row = row;
        fault.offset = offset;
        const std::lock_guard lock(mutex);
        if (!result.fault || row < result.fault.row) result.fault = fault;
        return;
      }
      if (!parser.description().empty()) note_description(parser, row, descriptions);
      for (size_t c = 0; c < columns.size(); ++c) {
        const Cell& cell = parser.cells()[c];
        const bool here = cell.form == Cell::Form::kPacked && cell.kind == slots[c].kind &&
                          cell.bytes.size() == slots[c].size &&
                          cell.bytes.data() == file.data() + first + row * stride + slots[c].offset;
        if (!here && holds[c].load(std::memory_order_relaxed) != 0) holds[c] = 0;
      }
      parser.scratch().clear();
    }
    if (descriptions.empty()) return;
    const std::lock_guard lock(mutex);
    join_descriptions(descriptions, result.descriptions);
  });
  result.holds.assign(holds.begin(), holds.end());
  return result;
}

}  // namespace recmap
