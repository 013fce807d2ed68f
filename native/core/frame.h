// The framing of TFRecord: finding, checking and writing records in a buffer.
// A "file" here is any buffer of framed bytes: a mapped file, or a window of an
// inflated stream. Every function reads only inside the buffer, whatever its
// bytes say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "crc32c.h"
#include "fault.h"
#include "format.h"

namespace recmap {

// The data of the record at `offset`. Checks bounds and the CRC of the length,
// and the CRC of the data if `verify`. On failure fills code, offset, expected
// and found of `fault` and returns false.
bool read_frame(Bytes file, uint64_t offset, bool verify, Bytes& data, Fault& fault);

// Checks the CRC of data found by read_frame() against what follows it.
bool check_data(Bytes data, Fault& fault);
// The masked CRC that is stored behind the data.
inline uint32_t stored_crc(Bytes data) { return load_le<uint32_t>(data.data() + data.size()); }

// Writes the 12 bytes before the data.
void write_header(uint8_t* out, uint64_t length);
// Writes the 4 bytes after the data.
void write_footer(uint8_t* out, Bytes data);

// Records that lie end to end from `begin`.
struct Scan {
  uint64_t begin = 0;
  uint64_t end = 0;  // where the next record would begin
  uint64_t records = 0;
  uint64_t min_length = 0;  // of the data; both 0 when there are no records
  uint64_t max_length = 0;
  uint64_t first_length = 0;
  // Row and offset of every `every`-th record, the first included.
  std::vector<uint64_t> mark_rows;
  std::vector<uint64_t> mark_offsets;
  // Why the scan ended before `stop`, if it did; its row counts from `begin`.
  Fault fault;
};

// Scans the records that begin in [begin, stop), at most `limit` of them.
Scan scan(Bytes file, uint64_t begin, uint64_t stop, uint64_t limit, uint64_t every, bool verify);

// The same records as scan() without a limit, found by `threads` threads that
// each enter the file at a record found by find_record(); each piece begins with
// a mark, so marks may be closer together. A piece that entered
// at a false record (a TFRecord file stored inside a record) is scanned anew
// from where the piece before it ended.
Scan scan_parallel(Bytes file, uint64_t begin, uint64_t stop, uint64_t every, bool verify,
                   size_t threads);

// The first offset in [begin, stop) at which a record begins whose length and
// data both match their CRCs; `stop` if there is none.
uint64_t find_record(Bytes file, uint64_t begin, uint64_t stop);

// The offsets of the records with the numbers `rows`, found by walking from the
// nearest mark at or before each. Marks are sorted by row; the first is row 0,
// and the records between two marks lie end to end. Ascending rows are walked
// once. Returns the first fault, with `row` the position in `rows`.
Fault locate(Bytes file, std::span<const uint64_t> mark_rows,
             std::span<const uint64_t> mark_offsets, std::span<const int64_t> rows,
             std::span<uint64_t> offsets, size_t threads = 1);

// A file whose records are known: they are `stride` bytes apart, or found by marks. The
// first may be longer by `lead` bytes, which stand before its features.
struct KnownFile {
  Bytes bytes;
  uint64_t stride;  // 0 if they are not all of one length
  std::span<const uint64_t> mark_rows;
  std::span<const uint64_t> mark_offsets;
  uint64_t lead = 0;
};

// Where a record begins among records of one stride.
constexpr uint64_t strided_offset(uint64_t row, uint64_t stride, uint64_t lead) {
  return row * stride + (row == 0 ? 0 : lead);
}

// The bytes in which a row lies: its own, or those from a mark to the next. None if the
// file has no such row.
Bytes stretch_of(const KnownFile& file, uint64_t row);

// The same as above for rows of several files, each a row of the file that its owner says,
// or all of the first if there are no owners.
Fault locate(std::span<const KnownFile> files, std::span<const uint32_t> owners,
             std::span<const int64_t> rows, std::span<uint64_t> offsets, size_t threads = 1);

}  // namespace recmap
