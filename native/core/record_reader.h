// The first phase of reading records, shared by decoding and checking them: the frame is read,
// the message parsed, and what it holds besides the wanted columns is collected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "column.h"
#include "example.h"
#include "fault.h"
#include "frame.h"
#include "record_parser.h"
#include "records.h"
#include "step.h"

namespace recmap {

struct ReadOptions {
  bool verify = true;  // check the CRC of the data
  size_t threads = 1;
  bool count_unknown = false;  // look for features that no column reads
  Steps steps = {};            // what to read of records that hold many steps
};

// A feature that no column reads, over the rows seen.
struct UnknownFeature {
  Kind kind = Kind::kNone;  // in the first row that has it; kNone for a feature list
  uint64_t rows = 0;
  uint64_t first_row = UINT64_MAX;
};

// Unknown features by map (in the feature lists?) and key.
using UnknownFeatures = std::map<std::pair<bool, std::string>, UnknownFeature>;

// Descriptions of the columns that records begin with, each with the first row that has it.
using Descriptions = std::map<std::string, uint64_t>;

// What records hold besides the wanted columns. Each thread fills its own, and they are merged.
struct Findings {
  UnknownFeatures unknown;
  Descriptions descriptions;

  bool empty() const { return unknown.empty() && descriptions.empty(); }
  void add_unknown(std::span<const RecordParser::Unknown> features, uint64_t row);
  void add_description(Bytes content, uint64_t row);
  void merge(const Findings& other);
};

// How many records to give a thread at once, judged by the size of the first few.
size_t records_per_block(const Records& records, size_t columns);

// Reads one record after another, on one thread. Records and columns must outlive it.
class RecordReader {
 public:
  RecordReader(const Records& records, std::span<const Column> columns, bool find_unknown)
      : records_(records), parser_(columns, find_unknown) {}

  // Reads the frame of a record and parses its data; with `verify`, checks the CRC of the data
  // first. A record of a file with a stride must end where the next begins. On failure returns
  // false and fills `fault`, row and offset included.
  bool read(size_t row, bool verify, Fault& fault);

  // Of the last record that was read. Cells are valid until the next read().
  Bytes data() const { return data_; }
  const RecordParser& parser() const { return parser_; }
  std::span<const Cell> cells() const { return parser_.cells(); }
  std::span<const RecordParser::Unknown> unknown() const { return parser_.unknown(); }
  Bytes description() const { return parser_.description(); }

  // Messages that cells point into. Move them out to keep cells of several records, or clear
  // them after each record.
  Scratch& scratch() { return parser_.scratch(); }

 private:
  bool fills_distance(size_t row, Fault& fault) const;
  bool parse(Fault& fault);
  bool fail_as_a_whole(Fault& fault) const;  // names the column whose feature list is damaged
  static bool fail(FaultCode code, Fault& fault, uint64_t found = 0);

  const Records& records_;
  RecordParser parser_;
  Bytes data_;
};

// ---------------------------------------------------------------------------
// Inline, because it runs once per record.

inline bool RecordReader::read(size_t row, bool verify, Fault& fault) {
  if (read_frame(records_.file(row), records_.offset(row), verify, data_, fault) &&
      fills_distance(row, fault) && parse(fault)) {
    return true;
  }
  fault.row = row;
  fault.offset = records_.offset(row);
  return false;
}

inline bool RecordReader::fills_distance(size_t row, Fault& fault) const {
  const uint64_t distance = records_.distance(row);
  return distance == 0 || data_.size() + kFrameSize == distance || fail(FaultCode::kChanged, fault);
}

inline bool RecordReader::parse(Fault& fault) {
  if (data_.size() > kMaxMessageSize) return fail(FaultCode::kTooLarge, fault, data_.size());
  if (!parser_.parse(data_)) return fail(FaultCode::kMalformed, fault);
  return parser_.shape_fault() == FaultCode::kNone || fail_as_a_whole(fault);
}

}  // namespace recmap
