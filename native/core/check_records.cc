#include "check_records.h"

#include <algorithm>
#include <mutex>

#include "copy_columns.h"
#include "parallel.h"

namespace recmap {
namespace {

// Buffers for one row of one column at a time.
class ScratchBuffers {
 public:
  ColumnBuffers resize(const BufferSizes& sizes) {
    values_.resize(sizes.values);
    outer_.resize(sizes.outer);
    steps_.resize(sizes.steps);
    strings_.resize(sizes.strings);
    return {values_, outer_, steps_, strings_};
  }

 private:
  std::vector<uint8_t> values_;
  std::vector<int64_t> outer_;
  std::vector<int64_t> steps_;
  std::vector<int64_t> strings_;
};

bool check_columns(std::span<const Column> columns, std::span<const Cell> cells,
                   ScratchBuffers& scratch, Fault& fault) {
  for (size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].dense_numbers() && is_exact(columns[c], cells[c])) continue;
    CellSize size;
    const CellSize begin;
    if (measure_cell(columns[c], cells[c], size, fault) &&
        copy_placed(columns[c], {cells[c], 0, begin, size},
                    scratch.resize(buffer_sizes(columns[c], size, 1)), fault)) {
      continue;
    }
    fault.column = static_cast<uint32_t>(c);
    return false;
  }
  return true;
}

bool check_unknown(std::span<const RecordParser::Unknown> unknown, Fault& fault) {
  if (unknown.empty()) return true;
  fault.code = FaultCode::kUnknown;
  fault.found = static_cast<int64_t>(unknown[0].kind);
  return false;
}

}  // namespace

RecordCheck check_records(const Records& records, std::span<const Column> columns,
                          const ReadOptions& options) {
  std::vector<Fault> faults;
  Findings findings;
  std::mutex mutex;
  const size_t block = records_per_block(records, columns.size());
  parallel_blocks(records.size(), block, options.threads, [&](size_t begin, size_t end) {
    RecordReader reader(records, columns, options.count_unknown);
    Findings found;
    ScratchBuffers scratch;
    for (size_t row = begin; row < end; ++row) {
      Fault fault;
      const bool parsed = reader.read(row, options.verify, fault);
      if (parsed && !reader.description().empty()) {
        found.add_description(reader.description(), row);
      }
      const bool sound = parsed && check_columns(columns, reader.cells(), scratch, fault) &&
                         check_unknown(reader.unknown(), fault);
      reader.scratch().clear();
      if (sound) continue;
      fault.row = row;
      fault.offset = records.offset(row);
      const std::lock_guard lock(mutex);
      faults.push_back(fault);
    }
    if (found.empty()) return;
    const std::lock_guard lock(mutex);
    findings.merge(found);
  });
  std::sort(faults.begin(), faults.end(),
            [](const Fault& a, const Fault& b) { return a.row < b.row; });
  return {std::move(faults), std::move(findings.descriptions)};
}

}  // namespace recmap
