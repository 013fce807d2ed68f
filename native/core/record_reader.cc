#include "record_reader.h"

#include <algorithm>

namespace recmap {
namespace {

// A block of about this many bytes is worth handing to a thread.
constexpr size_t kBlockBytes = size_t{1} << 18;
constexpr size_t kSampledRecords = 16;
constexpr size_t kMostRecords = size_t{1} << 14;
// A reader is made for every block, and takes longer to make the more columns there are.
constexpr size_t kColumnsPerRecord = 8;

}  // namespace

void Findings::add_unknown(std::span<const RecordParser::Unknown> features, uint64_t row) {
  for (const RecordParser::Unknown& found : features) {
    UnknownFeature& feature =
        unknown[{found.in_lists, std::string(found.key.begin(), found.key.end())}];
    if (feature.rows++ == 0) {
      feature.kind = found.kind;
      feature.first_row = row;
    }
  }
}

void Findings::add_description(Bytes content, uint64_t row) {
  descriptions.try_emplace({content.begin(), content.end()}, row);
}

void Findings::merge(const Findings& other) {
  for (const auto& [key, feature] : other.unknown) {
    UnknownFeature& known = unknown[key];
    if (feature.first_row < known.first_row) {
      known.kind = feature.kind;
      known.first_row = feature.first_row;
    }
    known.rows += feature.rows;
  }
  for (const auto& [content, row] : other.descriptions) {
    uint64_t& first = descriptions.try_emplace(content, row).first->second;
    first = std::min(first, row);
  }
}

size_t records_per_block(const Records& records, size_t columns) {
  if (records.size() == 0) return 1;
  const size_t sampled = std::min(records.size(), kSampledRecords);
  uint64_t bytes = 0;
  for (size_t i = 0; i < sampled; ++i) {
    Bytes data;
    Fault ignored;
    if (read_frame(records.file(i), records.offset(i), false, data, ignored)) bytes += data.size();
    bytes += kFrameSize;
  }
  const size_t fewest = std::clamp<size_t>(columns / kColumnsPerRecord, 1, kMostRecords);
  return std::clamp<size_t>(kBlockBytes * sampled / bytes, fewest, kMostRecords);
}

bool RecordReader::fail_as_a_whole(Fault& fault) const {
  const std::span<const Cell> found = cells();
  const auto damaged = std::find_if(found.begin(), found.end(), [](const Cell& cell) {
    return cell.form == Cell::Form::kSteps && !visit_steps(cell, [](const Cell&) { return true; });
  });
  if (damaged != found.end()) fault.column = static_cast<uint32_t>(damaged - found.begin());
  return fail(parser_.shape_fault(), fault);
}

bool RecordReader::fail(FaultCode code, Fault& fault, uint64_t found) {
  fault.code = code;
  fault.found = static_cast<int64_t>(found);
  return false;
}

}  // namespace recmap
