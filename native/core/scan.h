// Finding the records of a file that has no index yet. Reads stay inside the file, whatever its
// bytes say. All functions are safe to call from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fault.h"
#include "format.h"

namespace recmap {

// Which records to scan: those that begin in [begin, stop), the first of them at `begin`.
struct ScanRequest {
  uint64_t begin = 0;
  uint64_t stop = UINT64_MAX;
  uint64_t limit = UINT64_MAX;  // the most records to scan; one thread scans if it is set
  uint64_t anchor_every = 0;    // remember every so many records; 0 for none
  bool verify = false;          // also check the CRC of the data
  size_t threads = 1;
};

// Records that lie end to end.
struct Scan {
  uint64_t begin = 0;
  uint64_t end = 0;  // where the next record would begin
  uint64_t records = 0;
  uint64_t min_length = 0;  // of the data; both 0 if there are no records
  uint64_t max_length = 0;
  uint64_t first_length = 0;
  // Rows (counted from `begin`) and offsets of the records to remember, the first included.
  std::vector<uint64_t> anchor_rows;
  std::vector<uint64_t> anchor_offsets;
  // Why the scan ended early, if it did. Its row counts from `begin`.
  Fault fault;
};

// Scans records. Each of several threads enters the file at a record that find_record() finds,
// and begins with an anchor, so anchors may be closer together than asked for; otherwise the
// result does not depend on the number of threads.
Scan scan(Bytes file, const ScanRequest& request);

// The first offset in [begin, stop) at which a record begins whose length and data both match
// their CRCs; `stop` if there is none. Unless `verify`, the data is not looked at.
uint64_t find_record(Bytes file, uint64_t begin, uint64_t stop, bool verify = true);

}  // namespace recmap
