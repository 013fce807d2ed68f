// Where the payload of a column lies, if it lies at the same place in every record: such a column
// can be mapped as an array.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "column.h"
#include "fault.h"
#include "record_reader.h"
#include "records.h"

namespace recmap {

// A payload inside a record, counted from the first byte of the frame.
struct Slot {
  uint64_t offset = 0;
  uint64_t size = 0;
  Kind kind = Kind::kNone;  // kNone if the payload has no such place
  bool operator==(const Slot&) const = default;
};

// The slot of each column in the record at `offset`, where its cell is one packed list or one
// string. Empty if the record cannot be read.
std::vector<Slot> find_slots(Bytes file, uint64_t offset, std::span<const Column> columns);

// Records of one size that fill a file end to end, the first longer by `lead` bytes.
struct UniformRecords {
  uint64_t count;
  uint64_t stride;  // kFrameSize or more
  uint64_t lead = 0;

  uint64_t offset(uint64_t row) const { return strided_offset(row, stride, lead); }
};

struct SlotCheck {
  Fault fault;                 // of the first record that is damaged
  std::vector<uint8_t> holds;  // per column
  Descriptions descriptions;
};

// Finds out whether each column lies at its slot in all records, the slot of record i being
// i * stride bytes behind that of the first. A slot of kind kNone never holds.
SlotCheck check_slots(Bytes file, const UniformRecords& records, std::span<const Column> columns,
                      std::span<const Slot> slots, const ReadOptions& options);

}  // namespace recmap
