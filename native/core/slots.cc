#include "slots.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "first_fault.h"
#include "frame.h"
#include "parallel.h"
#include "record_parser.h"

namespace recmap {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;

bool parse_uniform(Bytes file, const UniformRecords& records, uint64_t row, bool verify,
                   RecordParser& parser, Fault& fault) {
  Bytes data;
  if (!read_frame(file, records.offset(row), verify, data, fault)) return false;
  if (data.size() + kFrameSize != records.offset(row + 1) - records.offset(row)) {
    fault.code = FaultCode::kChanged;
  } else if (!parser.parse(data)) {
    fault.code = FaultCode::kMalformed;
  }
  return !fault;
}

bool lies_at(const Cell& cell, const Slot& slot, const uint8_t* place) {
  return cell.form == Cell::Form::kPacked && cell.kind == slot.kind &&
         cell.bytes.size() == slot.size && cell.bytes.data() == place;
}

}  // namespace

std::vector<Slot> find_slots(Bytes file, uint64_t offset, std::span<const Column> columns) {
  std::vector<Slot> slots;
  Bytes data;
  Fault ignored;
  RecordParser parser(columns);
  if (!read_frame(file, offset, false, data, ignored) || !parser.parse(data)) return slots;
  for (const Cell& cell : parser.cells()) {
    // A payload that was put together in scratch does not lie in the file.
    const bool in_file = cell.form == Cell::Form::kPacked && cell.bytes.data() >= data.data() &&
                         cell.bytes.data() <= data.data() + data.size();
    slots.push_back(in_file ? Slot{static_cast<uint64_t>(cell.bytes.data() - file.data()) - offset,
                                   cell.bytes.size(), cell.kind}
                            : Slot{});
  }
  return slots;
}

SlotCheck check_slots(Bytes file, const UniformRecords& records, std::span<const Column> columns,
                      std::span<const Slot> slots, const ReadOptions& options) {
  std::vector<std::atomic<uint8_t>> holds(columns.size());
  for (size_t c = 0; c < columns.size(); ++c) holds[c] = slots[c].kind != Kind::kNone;
  FirstFault faults;
  Findings findings;
  std::mutex mutex;
  const size_t block = std::clamp<size_t>(kBlockBytes / records.stride, 1, 1 << 16);
  parallel_blocks(records.count, block, options.threads, [&](size_t begin, size_t end) {
    RecordParser parser(columns);
    Findings found;
    for (size_t row = begin; row < end; ++row) {
      Fault fault;
      if (!parse_uniform(file, records, row, options.verify, parser, fault)) {
        fault.row = row;
        fault.offset = records.offset(row);
        return faults.add(fault);
      }
      if (!parser.description().empty()) found.add_description(parser.description(), row);
      const uint8_t* const base = file.data() + row * records.stride;
      for (size_t c = 0; c < columns.size(); ++c) {
        if (lies_at(parser.cells()[c], slots[c], base + slots[c].offset)) continue;
        if (holds[c].load(std::memory_order_relaxed) != 0) holds[c] = 0;
      }
      parser.scratch().clear();
    }
    if (found.empty()) return;
    const std::lock_guard lock(mutex);
    findings.merge(found);
  });
  return {faults.get(), {holds.begin(), holds.end()}, std::move(findings.descriptions)};
}

}  // namespace recmap
