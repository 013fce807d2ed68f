// Checking records against columns, without keeping their values.
#pragma once

#include <span>
#include <vector>

#include "column.h"
#include "fault.h"
#include "record_reader.h"
#include "records.h"

namespace recmap {

struct RecordCheck {
  std::vector<Fault> faults;  // the first of each record that fails, by row
  Descriptions descriptions;
};

// Checks each record by decoding it into scratch buffers. With `count_unknown`, a record that
// holds a feature no column reads fails with kUnknown.
RecordCheck check_records(const Records& records, std::span<const Column> columns,
                          const ReadOptions& options);

}  // namespace recmap
