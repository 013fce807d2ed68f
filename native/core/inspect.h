// What records hold: the facts from which a schema is inferred, and where the
// payloads of a column lie when they lie alike in every record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "column.h"
#include "decode.h"
#include "fault.h"
#include "frame.h"

namespace recmap {

struct Extent {
  uint64_t min = UINT64_MAX;
  uint64_t max = 0;
  void add(uint64_t value) {
    if (value < min) min = value;
    if (value > max) max = value;
  }
};

// Of one key in one of a record's two maps, over all records seen.
struct FeatureFacts {
  uint64_t rows = 0;  // records in which it has a kind (or is a feature list)
  // First row with each Kind, indexed by Kind; UINT64_MAX if none.
  uint64_t first_row[4] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
  Extent values;  // per row, or per step of a feature list
  Extent steps;   // per row; feature lists only
  Extent string_size;
  uint64_t string_size_bits = 0;  // all string sizes or-ed: low zeros = divisible
};

using FactsKey = std::pair<bool, std::string>;  // in the feature lists?, key

struct Facts {
  uint64_t rows = 0;
  std::map<FactsKey, FeatureFacts> features;
  std::optional<Fault> not_example;  // first record that is no Example
};

// Reads the records at `offsets`. Stops at the first record that is no Example.
Facts inspect(Bytes file, std::span<const uint64_t> offsets, bool verify);

// A payload inside a record: its place from the record's first byte.
struct Slot {
  uint64_t offset = 0;
  uint64_t size = 0;
  Kind kind = Kind::kNone;
  bool operator==(const Slot&) const = default;
};

// The slot of each column in the record at `offset`, where the column's cell is
// one packed list or one string; kind kNone otherwise. Empty if the record
// cannot be read.
std::vector<Slot> find_slots(Bytes file, uint64_t offset, std::span<const Column> columns);

// Whether each column lies at its slot in all `count` records that begin at
// `first` and have the stride `stride`, the first of them longer by `lead` bytes; a
// slot of kind kNone is not checked. A slot counts from the first record, so that of
// record i is i * stride further on. A damaged record is a fault.
struct SlotCheck {
  Fault fault;
  std::vector<uint8_t> holds;  // per column
  Descriptions descriptions;
};
SlotCheck check_slots(Bytes file, uint64_t first, uint64_t stride, uint64_t lead, uint64_t count,
                      std::span<const Column> columns, std::span<const Slot> slots, bool verify,
                      size_t threads);

}  // namespace recmap
