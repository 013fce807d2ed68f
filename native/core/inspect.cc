#include "inspect.h"

#include <algorithm>

#include "example.h"
#include "frame.h"
#include "utf8.h"

namespace recmap {
namespace {

bool add_values(const Cell& cell, uint64_t row, FeatureFacts& facts) {
  uint64_t values = 0;
  bool sound = true;
  const bool visited = visit_values(cell, [&](uint32_t tag, Bytes field) {
    if (cell.kind == Kind::kBytes) {
      ++values;
      facts.string_size.add(field.size());
      facts.string_size_bits |= field.size();
    } else if (tag != kTagPacked) {
      ++values;
    } else if (cell.kind == Kind::kFloat) {
      sound &= field.size() % 4 == 0;
      values += field.size() / 4;
    } else {
      sound &= field.empty() || field.back() < 0x80;
      values += static_cast<uint64_t>(
          std::count_if(field.begin(), field.end(), [](uint8_t byte) { return byte < 0x80; }));
    }
    return true;
  });
  facts.values.add(values);
  uint64_t& first = facts.first_row[static_cast<size_t>(cell.kind)];
  first = std::min(first, row);
  return visited && sound;
}

bool add_cell(const Cell& cell, uint64_t row, FeatureFacts& facts) {
  if (cell.form == Cell::Form::kMissing) return true;
  ++facts.rows;
  if (cell.form != Cell::Form::kSteps) return add_values(cell, row, facts);
  uint64_t steps = 0;
  const bool visited = visit_steps(cell, [&](const Cell& step) {
    ++steps;
    if (step.form == Cell::Form::kMissing) {
      facts.values.add(0);
      return true;
    }
    return add_values(step, row, facts);
  });
  facts.steps.add(steps);
  return visited;
}

// All entries of one record; the last of those with equal keys.
using RecordCells = std::map<FactsKey, Cell>;

bool collect(Bytes record, bool lists, Scratch& scratch, RecordCells& cells) {
  bool sound = true;
  const bool visited =
      visit_entries(record, lists, scratch, [&](bool in_lists, Bytes key, const Cell& cell) {
        sound = sound && is_utf8(key);
        cells[{in_lists, std::string(key.begin(), key.end())}] = cell;
      });
  return visited && sound;
}

bool lists_are_sound(const RecordCells& cells) {
  return std::all_of(cells.begin(), cells.end(), [](const auto& entry) {
    FeatureFacts ignored;
    return !entry.first.first || add_cell(entry.second, 0, ignored);
  });
}

FaultCode add_record(Bytes record, uint64_t row, Facts& facts) {
  Scratch scratch;
  RecordCells cells;
  const bool lists = collect(record, true, scratch, cells) && lists_are_sound(cells);
  if (!lists) {
    // Field 2 is unknown in a plain Example and may hold anything.
    cells.clear();
    if (!collect(record, false, scratch, cells)) return FaultCode::kMalformed;
  }
  // Checked first, because nothing of a bad record counts.
  const bool sound = std::all_of(cells.begin(), cells.end(), [](const auto& entry) {
    FeatureFacts ignored;
    return add_cell(entry.second, 0, ignored);
  });
  if (!sound) return FaultCode::kMalformed;
  if (const FaultCode code = shape_fault(record, lists); code != FaultCode::kNone) return code;
  for (const auto& [key, cell] : cells) add_cell(cell, row, facts.features[key]);
  return FaultCode::kNone;
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
    fault.code =
        data.size() > kMaxMessageSize ? FaultCode::kMalformed : add_record(data, row, facts);
    if (fault) {
      fault.offset = offsets[row];
      facts.not_example = fault;
      return facts;
    }
    ++facts.rows;
  }
  return facts;
}

}  // namespace recmap
