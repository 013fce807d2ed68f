// The frame of one record: reading, checking and writing it. Reads stay inside the file,
// whatever its bytes say. All functions are safe to call from any thread.
#pragma once

#include <cstdint>

#include "crc32c.h"
#include "fault.h"
#include "format.h"

namespace recmap {

// Gives the data of the record at `offset`. Checks bounds and the CRC of the length, and with
// `verify` the CRC of the data. On failure returns false and fills code, offset, expected and
// found of `fault`.
inline bool read_frame(Bytes file, uint64_t offset, bool verify, Bytes& data, Fault& fault);

// The masked CRC that is stored behind data found by read_frame().
inline uint32_t stored_crc(Bytes data) { return load_le<uint32_t>(data.data() + data.size()); }

// Checks data found by read_frame() against its stored CRC. On failure returns false and fills
// code, expected and found of `fault`.
inline bool check_data(Bytes data, Fault& fault);

// Writes the 12 bytes before the data.
void write_header(uint8_t* out, uint64_t length);
// Writes the 4 bytes after the data.
void write_footer(uint8_t* out, Bytes data);

// ---------------------------------------------------------------------------
// Inline, because they run once per record: as calls they made a scan 8% slower.

inline bool read_frame(Bytes file, uint64_t offset, bool verify, Bytes& data, Fault& fault) {
  const auto fail = [&](FaultCode code, uint64_t expected, uint64_t found) {
    fault.code = code;
    fault.offset = offset;
    fault.expected = static_cast<int64_t>(expected);
    fault.found = static_cast<int64_t>(found);
    return false;
  };
  const uint64_t left = offset < file.size() ? file.size() - offset : 0;
  if (left < kHeaderSize) return fail(FaultCode::kHeaderCut, kHeaderSize, left);
  const uint8_t* header = file.data() + offset;
  const uint64_t length = load_le<uint64_t>(header);
  const uint32_t stored = load_le<uint32_t>(header + 8);
  // The length is checked before it is believed, so that a flipped bit is not reported as a
  // truncated file.
  uint8_t length_bytes[8];
  store_le(length_bytes, length);
  const uint32_t computed = masked_crc32c(length_bytes, 8);
  if (computed != stored) return fail(FaultCode::kLengthCrc, computed, stored);
  if (left < kFrameSize || length > left - kFrameSize) {
    const uint64_t needed = length > UINT64_MAX - kFrameSize ? UINT64_MAX : length + kFrameSize;
    return fail(FaultCode::kDataCut, needed, left);
  }
  data = Bytes(header + kHeaderSize, length);
  if (!verify || check_data(data, fault)) return true;
  fault.offset = offset;
  return false;
}

inline bool check_data(Bytes data, Fault& fault) {
  const uint32_t computed = masked_crc32c(data.data(), data.size());
  const uint32_t stored = stored_crc(data);
  if (computed == stored) return true;
  fault.code = FaultCode::kDataCrc;
  fault.expected = computed;
  fault.found = stored;
  return false;
}

}  // namespace recmap
